"""What a power loss may leave of a folder, drawn from what was durable and what was written.

A `Tree` is a folder in memory: every file with its identity (inode and generation, so that a name
that was given to another file is told apart) and its bytes. `draw` makes one legal state of the
tree after the cut (`durable`: what the journal and the disk have) and of the tree before it
(`live`: what the page cache had). The names are those of one or the other, and so is the length of
a file, since a journal commits whole transactions in their order. Of each file, every page that
differs is old, new, or torn between sectors.
"""

from __future__ import annotations

import array
import dataclasses
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

PAGE = 4096
SECTOR = 512
GET_GENERATION = 0x80087601
"""FS_IOC_GETVERSION: tells a new file from an old one that had the same inode number."""

Identity = tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class File:
    """One file: who it is and what it holds."""

    identity: Identity
    data: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """A folder: its files and folders by their path below it."""

    files: dict[str, File]
    folders: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Style:
    """How a state is drawn: whose names, and the share of new and of torn pages."""

    live_names: bool
    live: float
    torn: float


DURABLE = Style(live_names=False, live=0.0, torn=0.0)
LIVE = Style(live_names=True, live=1.0, torn=0.0)
"""Everything arrived: also what a killed process leaves."""


@dataclasses.dataclass(slots=True)
class Pages:
    """How many pages differed, and how many of them are new or torn in a state."""

    differ: int = 0
    live: int = 0
    torn: int = 0


def read_tree(folder: Path) -> Tree:
    """Read a folder. The file system must be one that knows generations (ext4)."""
    files: dict[str, File] = {}
    folders: set[str] = set()
    for at, below, names in os.walk(folder):
        here = Path(at)
        folders.update(str((here / name).relative_to(folder)) for name in below)
        for name in names:
            path = here / name
            with path.open("rb") as source:
                generation = array.array("L", [0])
                fcntl.ioctl(source.fileno(), GET_GENERATION, generation)
                identity = (os.fstat(source.fileno()).st_ino, generation[0])
                files[str(path.relative_to(folder))] = File(identity, source.read())
    return Tree(files, frozenset(folders))


def write_tree(tree: Tree, folder: Path) -> None:
    """Write a tree into an empty folder."""
    for name in sorted(tree.folders):
        (folder / name).mkdir()
    for name, file in tree.files.items():
        (folder / name).write_bytes(file.data)


def draw_style(number: int, rng: random.Random) -> Style:
    """Return how the state with this number is drawn; the first two are the ends."""
    if number < 2:
        return (DURABLE, LIVE)[number]
    return Style(rng.random() < 0.5, rng.choice((0.1, 0.5, 0.9)), rng.choice((0.0, 0.1, 0.3)))


def draw(durable: Tree, live: Tree, style: Style, rng: random.Random) -> tuple[Tree, Pages]:
    """Return one state that the cut may have left."""
    old = {file.identity: file.data for file in durable.files.values()}
    new = {file.identity: file.data for file in live.files.values()}
    names = live if style.live_names else durable
    pages = Pages()
    files: dict[str, File] = {}
    for name, file in names.files.items():
        before = old.get(file.identity, b"")
        after = new.get(file.identity, before)
        data = before if after == before else _mixed(before, after, style, pages, rng)
        files[name] = File(file.identity, data)
    return Tree(files, names.folders), pages


def _mixed(old: bytes, new: bytes, style: Style, pages: Pages, rng: random.Random) -> bytes:
    """Return a file whose pages are drawn; its length, which the journal keeps, is old or new."""
    length = rng.choice((len(old), len(new)))
    if style.live in (0.0, 1.0):
        length = len(new) if style.live else len(old)
    out = bytearray(old[:length].ljust(length, b"\0"))
    after = new[:length].ljust(length, b"\0")
    for at in range(0, length, PAGE):
        end = min(at + PAGE, length)
        if out[at:end] == after[at:end]:
            continue
        pages.differ += 1
        drawn = rng.random()
        if drawn < style.torn:
            pages.torn += 1
            for sector in range(at, end, SECTOR):
                if rng.random() < 0.5:
                    out[sector : min(sector + SECTOR, end)] = after[
                        sector : min(sector + SECTOR, end)
                    ]
        elif drawn < style.torn + style.live:
            pages.live += 1
            out[at:end] = after[at:end]
    return bytes(out)
