"""A metadata file is the old one or the new one, whatever happens while it is written."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from roquet.base.errors import Corrupt, DiskFull
from roquet.store.files import JsonFile


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


def test_two_broken_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(b"{")
    (tmp_path / "topics.json.bak").write_bytes(b"\0\0")
    with pytest.raises(Corrupt, match=r"topics\.json"):
        load(path)


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
