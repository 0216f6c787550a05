#!/bin/sh
# Installs podman with what it runs containers with, and debootstrap, where they are missing and that is allowed.
set -u
has() { for one in podman runc debootstrap iptables; do command -v "$one" >/dev/null || return 1; done; }
has && exit 0
command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || exit 0
echo "Installing podman, runc and debootstrap for the tests of the image ..."
sh "$(dirname "$0")/../apt_install.sh" podman runc netavark aardvark-dns iptables debootstrap
has || echo "podman, runc, iptables or debootstrap could not be installed: the tests of the image are skipped." >&2
