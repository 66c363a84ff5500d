"""Stores of small files, whose logs are read where no broker is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet import roquet_native as native

if TYPE_CHECKING:
    from pathlib import Path

FILE = 65536


def write(
    root: Path, count: int = 300, *, close: bool = True, body: int = 500, tags: bool = True
) -> Any:
    """Make a store of small files with `count` messages; return it when it stays open."""
    store = native.Store.open(
        {
            "storePathRootDir": str(root),
            "mappedFileSizeCommitLog": FILE,
            "mappedFileSizeConsumeQueue": 20000,
            "messageIndexEnable": False,
            "diskMaxUsedSpaceRatio": 95,
        }
    )
    store.start()
    for number in range(count):
        text = f"TAGS\x01{'ab'[number % 2]}\x02".encode() if tags else b""
        store.put(f"T{number % 3}", 0, f"{number} ".encode().ljust(body, b"."), text)
    if close:
        store.close()
    return store
