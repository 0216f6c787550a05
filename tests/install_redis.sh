#!/bin/sh
# Installs redis-server with the system's package manager, where it is missing and that is allowed.
set -u
command -v redis-server >/dev/null && exit 0
if command -v apt-get >/dev/null; then
    run=""
    [ "$(id -u)" = 0 ] || run="sudo -n"
    echo "Installing redis-server for the tests ..."
    $run apt-get update -qq >/dev/null 2>&1
    $run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server >/dev/null 2>&1 && exit 0
elif command -v brew >/dev/null; then
    echo "Installing redis for the tests ..."
    brew install --quiet redis && exit 0
fi
echo "redis-server is missing and could not be installed: the tests of the Redis backends are skipped, or fail where CI is set." >&2
