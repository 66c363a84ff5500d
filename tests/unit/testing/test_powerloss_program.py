"""Power cuts on a real file system: how states are drawn, and that a planted bug is noticed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tools.powerloss.states import DURABLE, LIVE, PAGE, SECTOR, File, Style, Tree, draw

REPOSITORY = Path(__file__).resolve().parents[3]
OLD, NEW = b"o" * PAGE * 8, b"n" * PAGE * 8


def tree(**files: tuple[int, bytes]) -> Tree:
    named = {name: File((inode, 1), data) for name, (inode, data) in files.items()}
    return Tree(named, frozenset())


def states(durable: Tree, live: Tree, style: Style) -> list[dict[str, bytes]]:
    drawn = [draw(durable, live, style, random.Random(seed))[0] for seed in range(50)]
    return [{name: file.data for name, file in state.files.items()} for state in drawn]


def test_the_ends_are_what_was_durable_and_what_was_written() -> None:
    durable, live = tree(log=(1, OLD[:PAGE])), tree(log=(1, NEW), table=(2, NEW))
    rng = random.Random(1)
    assert draw(durable, live, DURABLE, rng)[0] == durable
    assert draw(durable, live, LIVE, rng)[0] == live


def test_pages_between_are_old_new_or_torn_between_sectors() -> None:
    seen = set()
    for state in states(tree(log=(1, OLD)), tree(log=(1, NEW)), Style(True, 0.4, 0.3)):
        for at in range(0, len(OLD), PAGE):
            page = state["log"][at : at + PAGE]
            for sector in range(0, PAGE, SECTOR):
                assert page[sector : sector + SECTOR] in (OLD[:SECTOR], NEW[:SECTOR])
            seen.add("old" if page == OLD[:PAGE] else "new" if page == NEW[:PAGE] else "torn")
    assert seen == {"old", "new", "torn"}


def test_a_name_that_was_given_to_another_file_has_the_one_or_the_other() -> None:
    durable = tree(table=(1, OLD))
    live = tree(table=(2, NEW))
    names_kept = states(durable, live, Style(False, 0.5, 0.0))
    assert all(state == {"table": OLD} for state in names_kept)
    # The rename was committed before the bytes were: zeros, and no byte of the old file.
    names_new = states(durable, live, Style(True, 0.5, 0.0))
    assert all(set(state["table"]) <= {0, ord("n")} for state in names_new)
    assert b"" in [state["table"] for state in states(durable, live, Style(True, 0.01, 0.0))]


def powerloss(*options: str, path: str | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tools.powerloss.ext4", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
        env={**os.environ, "PATH": path if path is not None else os.environ["PATH"]},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_planted_an_acknowledgement_before_the_flush_is_noticed() -> None:
    short = ("--states", "3", "--load", "0.2", "--flush", "sync")
    code, said = powerloss(*short, "--plant")
    if code == 2:
        assert "root and loop mounts are needed" in said
        return
    assert code == 1, said
    assert "was not read back" in said
    assert "PROMISES BROKEN" in said


def test_where_nothing_can_be_mounted_that_is_said() -> None:
    code, said = powerloss("--states", "1", path="")
    assert code == 2, said
    assert "root and loop mounts are needed (unshare is not installed)" in said
    code, said = powerloss("--states", "1", "--if-possible", path="")
    assert code == 0, said
    assert "root and loop mounts are needed" in said
