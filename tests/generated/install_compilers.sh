#!/bin/sh
# Compilers of Go, Rust and Java, and the one module that a generated client in Go imports, from Debian's packages.
set -eu
missing=
command -v go >/dev/null && [ -d /usr/share/gocode/src/gopkg.in/validator.v2 ] || missing="golang-go golang-gopkg-validator.v2-dev"
command -v rustc >/dev/null || missing="$missing rustc"
command -v java >/dev/null || missing="$missing default-jdk-headless"
[ -n "$missing" ] || exit 0
# shellcheck disable=SC2086 # several packages
sh "$(dirname "$0")/../apt_install.sh" $missing
