"""In which order the names and contents of a metadata file become durable."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from durable_calls import DurableCalls
from roquet.base.durable import replace_file
from roquet.store.tables.files import JsonFile

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def save(file: JsonFile, data: bytes) -> None:
    async def run() -> None:
        async with file.writing:
            await file.save(lambda: data)

    asyncio.run(run())


def test_saved_table_is_synced_then_named_then_its_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = JsonFile(tmp_path / "config" / "topics.json")
    calls = DurableCalls(monkeypatch)
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
    calls = DurableCalls(monkeypatch)
    replace_file(tmp_path / "kv.json", b"{}")
    assert calls.made == [
        ("sync", "kv.json.tmp"),
        ("name", "kv.json"),
        ("sync", tmp_path.name),
    ]
