"""Two jobs never fill one folder at once, and one that was killed is in nobody's way."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import UsageError
from roquet.spark.jobs.storage.alone import alone, in_turn

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys, time
class Disk:
    def local(self, path):
        return path
from roquet.spark.jobs.storage.alone import alone
with alone(Disk(), sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


class Disk:
    """A file system whose paths are this machine's."""

    def local(self, path: str) -> str | None:
        return path


class Elsewhere:
    """A file system that is no disk of this machine."""

    def local(self, path: str) -> str | None:
        assert path
        return None


def test_second_job_on_a_folder_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    folder = str(tmp_path / "lake" / "_checkpoint")
    with alone(Disk(), folder):
        with (
            pytest.raises(UsageError, match="_checkpoint: another job goes on from it"),
            alone(Disk(), folder),
        ):
            pass
        with alone(Disk(), str(tmp_path / "other")):
            pass
    with alone(Disk(), folder):
        # A checkpoint that is there is one that was begun.
        assert [it.name for it in (tmp_path / "lake").iterdir()] == ["._checkpoint.lock"]


def test_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    folder = str(tmp_path / "table")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError), alone(Disk(), folder):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with alone(Disk(), folder):
        pass


def test_jobs_in_turn_wait_for_one_another(tmp_path: Path) -> None:
    folder, order = str(tmp_path / "_catalog"), list[str]()

    def second() -> None:
        with in_turn(Disk(), folder):
            order.append("second")

    with in_turn(Disk(), folder):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]


def test_other_file_systems_have_no_lock() -> None:
    with alone(Elsewhere(), "s3a://lake/_checkpoint"), alone(Elsewhere(), "s3a://lake/_checkpoint"):
        pass
