# Shared by the scripts of this folder; to be sourced. Sets ROOT, CACHE and TARGET, and has the few
# functions that print progress.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${A3SBOX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/a3sbox}
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
export CARGO_TARGET_DIR=$TARGET
[ -d "$HOME/.cargo/bin" ] && PATH=$HOME/.cargo/bin:$PATH
[ -d "$CACHE/go/bin" ] && PATH=$CACHE/go/bin:$PATH
export PATH

say() { printf '%s  %s\n' "$(date +%T)" "$*"; }

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Runs a command and says how long it took; its output goes to a log that is shown when it fails.
step() {
    local name=$1 began=$SECONDS log
    shift
    log=$(mktemp "${TMPDIR:-/tmp}/a3sbox-step.XXXXXX")
    say "$name ..."
    if "$@" >"$log" 2>&1; then
        say "$name: done in $((SECONDS - began)) s"
        rm -f "$log"
    else
        local status=$?
        tail -n 60 "$log" >&2
        rm -f "$log"
        die "$name failed after $((SECONDS - began)) s (exit $status)"
    fi
}

need_root() {
    [ "$(id -u)" = 0 ] || die "needs root: containers, cgroups and mounts are real here"
}
