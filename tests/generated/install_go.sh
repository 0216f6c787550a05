#!/bin/sh
# The Go compiler, and the one module that a generated client in Go imports, from Debian's packages.
set -eu
command -v go >/dev/null && [ -d /usr/share/gocode/src/gopkg.in/validator.v2 ] && exit 0
apt-get update -qq
apt-get install -y -qq golang-go golang-gopkg-validator.v2-dev >/dev/null
