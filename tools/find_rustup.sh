#!/usr/bin/env bash
# Print the rustup folder to use: the given one, HOME's, or the one beside the cargo on PATH.
if [ -n "${RUSTUP_HOME:-}" ]; then echo "$RUSTUP_HOME"; exit; fi
if [ -d "$HOME/.rustup" ]; then echo "$HOME/.rustup"; exit; fi
cargo=$(command -v cargo) || exit 0
beside=$(dirname "$(dirname "$(dirname "$cargo")")")/.rustup
[ -d "$beside" ] && echo "$beside"
exit 0
