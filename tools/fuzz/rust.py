"""Build the fuzz targets of the core and run them side by side.

`python -m tools.fuzz.rust [--seconds n] [--seed s] [--target name ...]`. The targets are
libFuzzer's (`crates/core/fuzz`). The coverage that guides them needs no nightly compiler and no
cargo-fuzz, only a C++ compiler for libFuzzer itself. They begin with bytes that Java's brokers and
clients wrote. A panic, a failed assertion, an input that takes a minute or 2 GiB is a finding.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.fuzz.run import Fuzzer, Limits, run
from tools.fuzz.seeds import seeds

ROOT = Path(__file__).parents[2]
CRATE = ROOT / "crates" / "core" / "fuzz"
BUILT = ROOT / "target" / "fuzz"
LENGTH_MAX = 16_384
FLAGS = (
    "--cfg",
    "fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Ccodegen-units=4",
)


def targets() -> list[str]:
    """Return the names of all targets."""
    return re.findall(
        r'^path = "fuzz_targets/\w+/(\w+)\.rs"$', (CRATE / "Cargo.toml").read_text(), re.MULTILINE
    )


def build() -> Path:
    """Build the targets and return the folder that has them."""
    about = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    # With a target named, build scripts and macros are built without instrumentation.
    host = about.split("host: ")[1].split()[0]
    manifest = ["--manifest-path", str(CRATE / "Cargo.toml"), "--target-dir", str(BUILT)]
    subprocess.run(
        ["cargo", "build", "-q", "--release", "--locked", "--target", host, *manifest],
        check=True,
        env={**os.environ, "RUSTFLAGS": " ".join(FLAGS)},
    )
    return BUILT / host / "release"


def main() -> int:
    """Run the command; the exit code says whether something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--target", choices=targets(), action="append", help="only these")
    options = parser.parse_args()
    folder = build()
    begin = seeds()
    fuzzers = [
        Fuzzer(name, [str(folder / name)], begin.get(name, []))
        for name in options.target or targets()
    ]
    limits = Limits(options.seconds, LENGTH_MAX, options.seed)
    with tempfile.TemporaryDirectory(prefix="roquet-fuzz-") as temporary:
        good = run(fuzzers, limits, Path(temporary))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
