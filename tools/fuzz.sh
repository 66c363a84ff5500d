#!/usr/bin/env bash
# Run every fuzz target for SECONDS each (default 60); stop at the first crash.
set -euo pipefail
cd "$(dirname "$0")/../crates/core"
seconds=${1:-60}
cargo fuzz --version >/dev/null 2>&1 || cargo install -q --locked cargo-fuzz
for target in $(cargo +nightly fuzz list); do
  echo "== $target for $seconds s"
  cargo +nightly fuzz run -s none "$target" -- -max_total_time="$seconds" -print_final_stats=1 2>&1 | tail -n 8
done
