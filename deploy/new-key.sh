#!/bin/sh
# Makes an API key: sh deploy/new-key.sh [TENANT]
# The key goes into deploy/secrets/TENANT.key, its hash into deploy/secrets/keys, which Spillgate reads.
set -eu
export LC_ALL=C
tenant=${1-default}
case $tenant in
    *[!A-Za-z0-9_.-]* | [!A-Za-z0-9_]* | '') echo "A tenant is letters, digits and ._-" >&2; exit 2 ;;
esac
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
if [ -e "secrets/$tenant.key" ]; then
    echo "deploy/secrets/$tenant.key is there. Move it away to make another key for $tenant." >&2
    exit 1
fi
key=$(openssl rand -hex 32)
digest=$(printf %s "$key" | openssl dgst -sha256 | sed 's/.* //')
printf '%s:%s:agent\n' "$tenant" "$digest" >>secrets/keys
# Hashes alone, in a directory that is closed to others; but the container's user has to read them.
chmod 644 secrets/keys
printf '%s\n' "$key" >"secrets/$tenant.key"
echo "deploy/secrets/$tenant.key holds the key, deploy/secrets/keys its hash."
