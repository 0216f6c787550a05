#!/usr/bin/env bash
set -euo pipefail

usage() {
    cat <<EOF
usage: shop [open|close]
EOF
}

function open_shop {
    local name="${1:-shop}"
    if [[ -n "$name" ]]; then
        echo "open $name" | tee -a "$LOG"
    fi
}

open_shop "$@"
