#!/usr/bin/env bash
# Say what is missing before anything is built, and what to type to get it.
missing=0
lacks() { echo "  missing: $1"; echo "     get it: $2"; missing=1; }

python3 - <<'PY' 2>/dev/null || lacks "Python 3.11 or later (python3)" "apt install python3 python3-venv, or pyenv install 3.11"
import sys
sys.exit(sys.version_info < (3, 11))
PY
python3 -c 'import ensurepip, venv' 2>/dev/null || lacks "Python's venv module" "apt install python3-venv"
cargo --version >/dev/null 2>&1 || lacks "a Rust toolchain 1.85 or later (cargo)" "install rustup, then: rustup default stable"
major=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
[ "${major:-0}" -ge 17 ] || lacks "Java 17 or later (java), for Spark" "apt install openjdk-17-jre-headless"
command -v cc >/dev/null || lacks "a C linker (cc)" "apt install gcc"
if [ "$missing" = 1 ]; then
  echo "Roquet needs the tools above to build and test itself; install them and run make again."
  exit 1
fi
