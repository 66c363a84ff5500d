"""In which order the names and contents of a metadata file become durable."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roquet.base.durable import replace_file
from roquet.store.files import JsonFile

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Calls:
    """Notes syncs by the name of what is synced, and renames by their target."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, str]] = []
        self._fsync = os.fsync
        self._replace = os.replace
        patch.setattr(os, "fsync", self.fsync)
        patch.setattr(Path, "replace", self._noted_replace())

    def fsync(self, handle: int) -> None:
        self.made.append(("sync", Path(f"/proc/self/fd/{handle}").readlink().name))
        self._fsync(handle)

    def _noted_replace(self) -> Callable[[Path, Any], Path]:
        def replace(source: Path, target: Any) -> Path:
            self.made.append(("name", Path(target).name))
            self._replace(source, target)
            return Path(target)

        return replace


def save(file: JsonFile, data: bytes) -> None:
    async def run() -> None:
        async with file.writing:
            await file.save(lambda: data)

    asyncio.run(run())


def test_saved_table_is_synced_then_named_then_its_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = JsonFile(tmp_path / "config" / "topics.json")
    calls = Calls(monkeypatch)
    save(file, b"{}")
    first = [("sync", "topics.json.tmp"), ("name", "topics.json"), ("sync", "config")]
    assert calls.made == first
    calls.made.clear()
    save(file, b"[]")
    # The copy gets its name while the old file has both.
    assert calls.made == [first[0], ("name", "topics.json.bak"), *first[1:]]


def test_replaced_file_is_synced_then_named_then_its_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    replace_file(tmp_path / "kv.json", b"{}")
    assert calls.made == [
        ("sync", "kv.json.tmp"),
        ("name", "kv.json"),
        ("sync", tmp_path.name),
    ]
