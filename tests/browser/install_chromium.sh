#!/bin/sh
# Installs Chromium with the system's package manager, where it is missing and that is allowed.
set -u
for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
    [ -n "$name" ] && command -v "$name" >/dev/null && exit 0
done
if command -v apt-get >/dev/null; then
    echo "Installing Chromium for the tests ..."
    sh "$(dirname "$0")/../apt_install.sh" chromium fonts-dejavu-core && exit 0
fi
echo "Chromium is missing and could not be installed: name it by CHROMIUM=/path/to/chromium." >&2
exit 1
