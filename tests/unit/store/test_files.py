"""A metadata file is the old one or the new one, whatever happens while it is written."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from roquet.base.durable import read_stored, replace_file
from roquet.base.errors import Corrupt, DiskFull
from roquet.store.tables import files
from roquet.store.tables.files import JsonFile


def save(file: JsonFile, value: object) -> None:
    async def save_it() -> None:
        async with file.writing:
            await file.save(lambda: json.dumps(value).encode())

    asyncio.run(save_it())


def load(path: Path) -> Any:
    return JsonFile(path).load(json.loads)


def test_what_was_saved_is_loaded_and_the_one_before_is_the_copy(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "config" / "topics.json")
    save(file, {"n": 1})
    save(file, {"n": 2})
    assert load(file.path) == {"n": 2}
    assert json.loads((tmp_path / "config" / "topics.json.bak").read_bytes()) == {"n": 1}
    assert sorted(p.name for p in file.path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_nothing_there_is_not_an_error(tmp_path: Path) -> None:
    assert load(tmp_path / "topics.json") is None


@pytest.mark.parametrize("broken", [b"", b"\0" * 4096, b'{"n":', b"[1]x"])
def test_a_broken_main_file_is_replaced_by_its_copy(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(broken)
    (tmp_path / "topics.json.bak").write_bytes(b'{"n":1}')
    file = JsonFile(path)
    assert file.load(json.loads) == {"n": 1}
    # The broken file must not push the good copy out before the new file is durable.
    save(file, {"n": 2})
    assert load(path) == {"n": 2}
    assert json.loads((tmp_path / "topics.json.bak").read_bytes()) == {"n": 1}


def test_copy_is_the_file_that_was_loaded_and_no_other(tmp_path: Path) -> None:
    path, copy = tmp_path / "topics.json", tmp_path / "topics.json.bak"
    path.write_bytes(b'{"n":1}')
    copy.write_bytes(b'{"n":0}')
    # Who has not read the file does not know whether it is whole.
    file = JsonFile(path)
    save(file, {"n": 2})
    assert (json.loads(copy.read_bytes()), file.from_copy) == ({"n": 0}, False)
    file = JsonFile(path)
    assert (file.load(json.loads), file.from_copy) == ({"n": 2}, False)
    save(file, {"n": 3})
    assert json.loads(copy.read_bytes()) == {"n": 2}
    path.unlink()
    file = JsonFile(path)
    assert (file.load(json.loads), file.from_copy) == ({"n": 2}, True)


def test_file_is_as_long_as_a_start_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILE_SIZE_MAX", 10)
    file = JsonFile(tmp_path / "not" / "there" / "yet" / "topics.json")
    save(file, "x" * 8)
    assert load(file.path) == "x" * 8
    with pytest.raises(OSError, match="11 bytes are more than the 10") as caught:
        save(file, "x" * 9)
    assert caught.value.errno == errno.EFBIG
    assert load(file.path) == "x" * 8
    file.path.write_bytes(b'"xxxxxxxxx"')
    with pytest.raises(Corrupt, match="larger than 10 bytes"):
        load(file.path)


def test_empty_file_is_no_table_whatever_would_be_made_of_it(tmp_path: Path) -> None:
    (tmp_path / "topics.json").touch()
    with pytest.raises(Corrupt, match="empty"):
        JsonFile(tmp_path / "topics.json").load(bytes)


def test_pipe_or_folder_in_place_of_a_table_is_refused_and_keeps_nobody_waiting(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "topics.json")
    (tmp_path / "topics.json.bak").mkdir()
    with pytest.raises(Corrupt, match=r"topics\.json: it is no file; .*\.bak: it is no file"):
        load(tmp_path / "topics.json")
    with pytest.raises(OSError, match="it is no file"):
        read_stored(tmp_path / "topics.json", 10)


def test_two_broken_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(b"{")
    (tmp_path / "topics.json.bak").write_bytes(b"\0\0")
    with pytest.raises(Corrupt, match=r"topics\.json") as caught:
        load(path)
    # What it says to type leaves nothing in the way, and loses neither file.
    command = str(caught.value).rpartition("what it says: ")[2]
    subprocess.run(command, shell=True, check=True)
    assert load(path) is None
    assert (tmp_path / "aside" / "topics.json").read_bytes() == b"{"
    assert (tmp_path / "aside" / "topics.json.bak").read_bytes() == b"\0\0"


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    file = JsonFile(tmp_path / "topics.json")
    save(file, {"n": 1})

    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if fails == "replace":
        monkeypatch.setattr(Path, "replace", no_room)
    else:
        monkeypatch.setattr(os, "fsync" if fails == "fsync" else "fdopen", no_room)
    with pytest.raises(DiskFull, match=r"topics\.json"):
        save(file, {"n": 2})
    monkeypatch.undo()
    assert not (tmp_path / "topics.json.tmp").exists(), "what was written in part takes no room"
    assert load(file.path) == {"n": 1}
    save(file, {"n": 3})
    assert load(file.path) == {"n": 3}


def test_a_link_in_place_of_the_side_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "topics.json.tmp").symlink_to(victim)
    with pytest.raises(OSError, match=r"topics\.json\.tmp"):
        save(JsonFile(tmp_path / "topics.json"), {"n": 1})
    assert victim.read_text() == "mine"


def open_files() -> list[Path]:
    """Return what this process has open."""
    handles = Path("/proc/self/fd").iterdir()
    return [it.readlink() for it in handles if it.is_symlink()]


def test_saving_leaves_no_handle_open_and_the_file_to_its_owner(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "topics.json")
    umask = os.umask(0)
    try:
        for number in range(3):
            save(file, {"n": number})
            replace_file(tmp_path / "kv.json", b"{}")
    finally:
        os.umask(umask)
    assert not [it for it in open_files() if it.is_relative_to(tmp_path)]
    assert file.path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_file_that_cannot_be_replaced_stays_and_nothing_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = tmp_path / "kv.json"
    replace_file(path, b"old")

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os if fails == "fsync" else Path, fails, no_room)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    monkeypatch.undo()
    assert [it.name for it in tmp_path.iterdir()] == ["kv.json"]
    assert path.read_bytes() == b"old"
