#!/bin/sh
# Installs redis-server, and promtool for the alerts, with the system's package manager, where they are missing
# and that is allowed.
set -u
has() { command -v redis-server >/dev/null && command -v promtool >/dev/null; }
has && exit 0
echo "Installing redis-server and promtool for the tests ..."
if command -v apt-get >/dev/null; then
    run=""
    [ "$(id -u)" = 0 ] || run="sudo -n"
    $run apt-get update -qq >/dev/null 2>&1
    $run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server prometheus >/dev/null 2>&1
elif command -v brew >/dev/null; then
    brew install --quiet redis prometheus
fi
has || echo "redis-server or promtool is missing and could not be installed: their tests are skipped, or fail where CI is set." >&2
