"""Run fuzzers that are libFuzzer underneath side by side, and say what each has done."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FINDINGS = Path("build/fuzz-findings")
COVERAGE = re.compile(r" cov: (\d+) ft: (\d+) corp: (\d+)/")
INPUTS = re.compile(r"number_of_executed_units:\s*(\d+)")
SLOW_S = 60
"""An input that takes longer is a finding; a machine that does much else needs so long for some."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fuzzer:
    """One process to run: its command and the inputs to begin with."""

    name: str
    command: Sequence[str]
    seeds: Iterable[bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How long each fuzzer runs, how long its inputs get, and what its draws begin with."""

    seconds: int
    length_max: int
    seed: int
    """0 draws another seed each time; with any other, a second run tries the same inputs."""


def flags(limits: Limits, folder: Path) -> list[str]:
    """Return libFuzzer's own arguments for a run in a folder that has its corpus."""
    return [
        f"-max_total_time={limits.seconds}",
        f"-seed={limits.seed}",
        f"-max_len={limits.length_max}",
        f"-timeout={SLOW_S}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        str(folder / "corpus"),
    ]


def prepare(folder: Path, seeds: Iterable[bytes]) -> None:
    """Make the folder of one fuzzer."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)


def run(fuzzers: Sequence[Fuzzer], limits: Limits, folder: Path) -> bool:
    """Run all at once; print a line for each and return whether nothing was found."""
    started: list[tuple[Fuzzer, Path, int, subprocess.Popen[bytes]]] = []
    begun = time.monotonic()
    for fuzzer in fuzzers:
        own = folder / fuzzer.name
        prepare(own, fuzzer.seeds)
        log = own / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*fuzzer.command, *flags(limits, own)],
                stdout=output,
                stderr=subprocess.STDOUT,
                # What it leaves behind goes away with its folder.
                env={**os.environ, "TMPDIR": str(own)},
            )
        started.append((fuzzer, own, process.pid, process))
    good = True
    for fuzzer, own, pid, process in started:
        _, status, used = os.wait4(pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        cpu_s = used.ru_utime + used.ru_stime
        wall_s = time.monotonic() - begun
        good &= account(fuzzer.name, own, process.returncode, wall_s, cpu_s)
    return good


def account(name: str, folder: Path, code: int, wall_s: float, cpu_s: float) -> bool:
    """Print what one fuzzer did; keep what it found."""
    text = (folder / "log").read_text(errors="replace")
    covered = COVERAGE.findall(text)
    edges, features, corpus = covered[-1] if covered else ("?", "?", "?")
    executed = INPUTS.findall(text)
    inputs = f"{int(executed[-1]):,}" if executed else "?"
    verdict = "no finding" if code == 0 else f"FOUND (exit code {code})"
    print(
        f"{name}: {inputs} inputs, {wall_s:.0f} s, {cpu_s:.0f} CPU s, {edges} edges,"
        f" {features} features, {corpus} kept, {verdict}",
        flush=True,
    )
    if code:
        FINDINGS.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.is_file() and path.name != "log":
                kept = shutil.copy(path, FINDINGS / f"{name}-{path.name}")
                print(f"kept: {kept}")
        lines = text.splitlines()
        why = next((at for at, line in enumerate(lines) if "panicked at" in line), -40)
        print("\n".join(lines[why:][:40]), flush=True)
    # A fuzzer that never came to its end has shown nothing.
    return code == 0 and bool(executed)
