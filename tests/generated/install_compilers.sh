#!/bin/sh
# Compilers of Go, Rust and Java, and annotations that a generated client in Java imports, from Debian's packages.
set -eu
missing=
command -v go >/dev/null || missing="golang-go"
command -v rustc >/dev/null || missing="$missing rustc"
command -v javac >/dev/null || missing="$missing default-jdk-headless"
[ -f /usr/share/java/geronimo-annotation-1.3-spec.jar ] || missing="$missing libgeronimo-annotation-1.3-spec-java"
[ -n "$missing" ] || exit 0
# shellcheck disable=SC2086 # several packages
sh "$(dirname "$0")/../apt_install.sh" $missing
