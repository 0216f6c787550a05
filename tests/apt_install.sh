#!/bin/sh
# Installs Debian's packages that are named. Several targets of make may do it at once: one waits for another.
set -eu
run=""
[ "$(id -u)" = 0 ] || run="sudo -n"
exec 9>/tmp/spillgate-apt.lock
flock 9
$run apt-get -qq -o DPkg::Lock::Timeout=600 update >/dev/null 2>&1
$run env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o DPkg::Lock::Timeout=600 install --no-install-recommends "$@" >/dev/null
