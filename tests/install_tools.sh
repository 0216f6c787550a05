#!/bin/sh
# Installs redis-server, promtool for the alerts, and nginx and HAProxy for the examples of deploy/proxy, with the
# system's package manager, where they are missing and that is allowed.
set -u
has() { for tool in redis-server promtool nginx haproxy; do PATH="$PATH:/usr/sbin" command -v $tool >/dev/null || return 1; done; }
has && exit 0
echo "Installing redis-server, promtool, nginx and haproxy for the tests ..."
if command -v apt-get >/dev/null; then
    run=""
    [ "$(id -u)" = 0 ] || run="sudo -n"
    $run apt-get update -qq >/dev/null 2>&1
    $run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server prometheus nginx-light haproxy >/dev/null 2>&1
elif command -v brew >/dev/null; then
    brew install --quiet redis prometheus nginx haproxy
fi
has || echo "redis-server, promtool, nginx or haproxy is missing and could not be installed: their tests are skipped, or fail where CI is set." >&2
