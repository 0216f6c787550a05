#!/bin/sh
# Installs the programs named by the arguments, with the system's package manager, where they are missing and that is
# allowed: redis-server, postgres, pgbouncer, promtool, nginx, haproxy, aws, sqlite3.
set -u
missing() {
    for place in /usr/lib/postgresql/*/bin; do PATH="$PATH:$place"; done
    for tool in "$@"; do PATH="$PATH:/usr/sbin" command -v "$tool" >/dev/null || printf '%s ' "$tool"; done
}
wanted=$(missing "$@")
[ -z "$wanted" ] && exit 0
echo "Installing $wanted for the tests ..."
# The packages that hold them: of Debian and Ubuntu, of Homebrew.
if command -v apt-get >/dev/null; then
    packages=$(echo "$wanted" | sed 's/promtool/prometheus/; s/nginx/nginx-light/; s/aws/awscli/; s/postgres/postgresql/')
    # shellcheck disable=SC2086
    sh "$(dirname "$0")/apt_install.sh" $packages
elif command -v brew >/dev/null; then
    # shellcheck disable=SC2086
    brew install --quiet $(echo "$wanted" | sed 's/redis-server/redis/; s/promtool/prometheus/; s/aws/awscli/; s/postgres/postgresql/')
fi
wanted=$(missing "$@")
[ -z "$wanted" ] || echo "Could not install $wanted: their tests are skipped, or fail where CI is set." >&2
