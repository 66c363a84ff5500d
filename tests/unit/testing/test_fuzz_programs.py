"""The fuzz programs themselves: they begin with valid inputs, and what breaks is found."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

import pytest
from tools.fuzz.atheris import GROUPS, group_of
from tools.fuzz.more import SEEDS
from tools.fuzz.python import decoders, hunt
from tools.fuzz.run import Fuzzer, Limits, run
from tools.fuzz.rust import targets
from tools.fuzz.seeds import seeds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READERS: dict[str, Callable[[bytes], object]] = dict(decoders())


@pytest.mark.parametrize(
    ("begin", "seed"),
    [(begin, seed) for begin, some in SEEDS.items() if begin != "ha.secret" for seed in some],
)
def test_seeds_are_valid(begin: str, seed: bytes) -> None:
    readers = [read for name, read in READERS.items() if name.startswith(begin)]
    assert readers
    for read in readers:
        read(seed)


def test_every_reader_has_a_group_and_every_group_a_reader() -> None:
    assert {group_of(name) for name in READERS} == set(GROUPS)


def test_every_target_of_the_core_begins_with_something() -> None:
    assert set(seeds()) == set(targets())


def test_planted_a_reader_that_breaks_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(data: bytes) -> object:
        raise TypeError(data)

    _, findings = hunt([("sql", READERS["sql"]), ("sql.broken", broken)], random.Random(1), 60.0)
    assert findings == 10
    assert "sql.broken" in capsys.readouterr().out


def test_planted_a_fuzzer_that_ends_badly_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    good = "print('#9 DONE cov: 7 ft: 8 corp: 2/1b\\nstat::number_of_executed_units: 1234')"
    bad = "print('thread panicked at here'); raise SystemExit(77)"
    fuzzers = [
        Fuzzer(name, [sys.executable, "-c", code], [b"x"])
        for name, code in (("good", good), ("bad", bad), ("silent", "pass"))
    ]
    assert not run(fuzzers, Limits(1, 100, 0), tmp_path / "runs")
    said = capsys.readouterr().out
    assert "good: 1,234 inputs" in said
    assert "7 edges, 8 features, 2 kept, no finding" in said
    assert "bad: ? inputs" in said
    assert "FOUND (exit code 77)" in said
    assert "thread panicked at here" in said
    assert run(fuzzers[:1], Limits(1, 100, 0), tmp_path / "again")
    assert not run(fuzzers[2:], Limits(1, 100, 0), tmp_path / "silence")
