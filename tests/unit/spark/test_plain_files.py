"""Files of a lake without a JVM, and archiving by ranges of offsets; no Spark."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from roquet.spark.jobs.archiving.by_ranges import cut
from roquet.spark.jobs.lake import escaped
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.jobs.storage.plain_files import PlainFiles
from roquet.spark.offsets import QueueKey, Range

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_files_are_written_whole_renamed_and_removed(tmp_path: Path) -> None:
    files, root = PlainFiles(), str(tmp_path)
    assert files.names(f"{root}/none") == []
    assert not files.exists(f"{root}/none")
    assert files.size(f"{root}/none") == 0
    files.write_new(f"{root}/a/b.json", "one")
    assert files.read(f"{root}/a/b.json") == "one"
    with pytest.raises(LakeError, match="is there already"):
        files.write_new(f"{root}/a/b.json", "two")
    assert files.names(f"{root}/a") == ["b.json"]
    files.replace(f"file://{root}/a/c", "three")
    assert (files.size(f"{root}/a"), files.names(f"{root}/a")) == (8, ["b.json", "c"])
    assert files.modified_ms(f"{root}/a/c") > 1_700_000_000_000
    files.rename(f"{root}/a", f"{root}/deep/folder")
    assert files.read(f"{root}/deep/folder/c") == "three"
    files.write_new(f"{root}/d", "")
    with pytest.raises(LakeError, match="which is there"):
        files.rename(f"{root}/d", f"{root}/deep/folder")
    files.gather([f"{root}/d"], f"{root}/deep")
    assert files.names(f"{root}/deep") == ["d", "folder"]
    for _ in range(2):
        files.delete(f"{root}/deep")
    assert not (tmp_path / "deep").exists()
    assert files.local(root) is None


FULL = """
import resource, signal, sys
from roquet.spark.jobs.storage.plain_files import PlainFiles
files = PlainFiles()
files.replace(sys.argv[1], "old")
# The disk has no room for more than this.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))
try:
    files.replace(sys.argv[1], "newer than that")
except OSError:
    print(files.read(sys.argv[1]))
"""


def test_note_is_as_it_was_when_the_disk_has_no_room_for_the_new_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "note")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "old\n"


def test_checksums_of_hadoop_go_with_their_file(tmp_path: Path) -> None:
    # Hadoop compares a file with the checksum beside it, whoever wrote the file since.
    files, beside = PlainFiles(), tmp_path / ".a.crc"
    changes: list[Callable[[], object]] = [
        lambda: files.replace(f"{tmp_path}/a", "new"),
        lambda: files.rename(f"{tmp_path}/a", f"{tmp_path}/b"),
        lambda: files.delete(f"{tmp_path}/a"),
    ]
    for change in changes:
        beside.write_bytes(b"old")
        change()
        assert not beside.exists()
        files.replace(f"{tmp_path}/a", "again")


def test_a_file_system_that_is_not_there_is_named() -> None:
    with pytest.raises(LakeError, match="PyArrow has no file system for it"):
        PlainFiles().exists("nowhere://host/lake")


def test_cut_ranges_have_each_offset_once_in_order_within_the_limit() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        queues = [QueueKey("t", f"b{n % 2}", n) for n in range(rng.randint(0, 5))]
        bounds = [(it, begin := rng.randrange(50), begin + rng.randrange(60)) for it in queues]
        whole = [Range(it, begin, end) for it, begin, end in bounds if begin < end]
        limit = rng.randint(1, 70)
        waves = cut(whole, limit)
        assert all(0 < sum(map(len, it)) <= limit for it in waves)
        assert all(len({it.queue for it in wave}) == len(wave) for wave in waves)
        for it in whole:
            mine = [part for wave in waves for part in wave if part.queue == it.queue]
            found = [offset for part in mine for offset in range(part.begin, part.end)]
            assert found == list(range(it.begin, it.end))


def test_escaped_names_keep_what_topics_have_and_escape_their_percent() -> None:
    assert escaped("a-B_9|x.y") == "a-B_9|x.y"
    assert escaped("%RETRY%g") == "%25RETRY%25g"
    assert escaped("a/b:c\n") == "a%2Fb%3Ac%0A"
