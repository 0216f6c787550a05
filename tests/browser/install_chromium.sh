#!/bin/sh
# Installs Chromium with the system's package manager, where it is missing and that is allowed.
set -u
for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
    [ -n "$name" ] && command -v "$name" >/dev/null && exit 0
done
if command -v apt-get >/dev/null; then
    run=""
    [ "$(id -u)" = 0 ] || run="sudo -n"
    echo "Installing Chromium for the tests ..."
    $run apt-get update -qq >/dev/null 2>&1
    $run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core \
        >/dev/null 2>&1 && exit 0
fi
echo "Chromium is missing and could not be installed: name it by CHROMIUM=/path/to/chromium." >&2
exit 1
