"""The file of offsets and the answer to slaves: when they are written, and in which slices."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from roquet.protocol.bodies.offsets import ConsumerOffsetBody
from roquet.store.tables import offsets as module
from roquet.store.tables.files import JsonFile
from roquet.store.tables.offsets import OffsetTable
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class CountingFile(JsonFile):
    """A file that counts how often it is written."""

    saves = 0

    @override
    async def save_pieces(self, pieces: Iterator[bytes]) -> None:
        self.saves += 1
        await super().save_pieces(pieces)


def table(folder: Path) -> tuple[OffsetTable, CountingFile]:
    file = CountingFile(folder / "consumerOffset.json")
    return OffsetTable(file, FakeClock()), file


def test_file_of_offsets_is_written_once_for_each_change(tmp_path: Path) -> None:
    it, file = table(tmp_path)
    asyncio.run(it.persist())
    assert file.saves == 0
    it.commit("g", "t", 0, 5)
    for _ in range(2):
        asyncio.run(it.persist())
        assert file.saves == 1
    it.reset("g", "t", 0, 3)
    for _ in range(2):
        asyncio.run(it.persist())
        assert file.saves == 2


def test_version_of_the_offsets_is_the_one_of_the_file(tmp_path: Path) -> None:
    it, _ = table(tmp_path)
    for offset in range(1200):
        it.commit("g", "t", 0, offset)
    asyncio.run(it.persist())
    again, _ = table(tmp_path)
    assert again.version != it.version
    again.load()
    assert again.version == it.version
    # A file without a version, as tools write it, leaves the table its own.
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable": {"t@g": {"0": 9}}}')
    other, _ = table(tmp_path)
    own = other.version
    other.load()
    assert (other.version, other.committed("g", "t", 0)) == (own, 9)


@pytest.mark.parametrize(
    ("own", "other", "offset"), [(None, 1, 2), (1, 2, 2), (1, 1, 1), (2, 1, 1), (1, None, 1)]
)
def test_newer_of_two_files_counts_and_is_the_broker_s_own_from_then_on(
    tmp_path: Path, own: int | None, other: int | None, offset: int
) -> None:
    """RocketMQ has another file for brokers with light queues, and the setting may change."""
    for name, commits, mine in (("own", own, 1), ("other", other, 2)):
        if commits is not None:
            it = OffsetTable(JsonFile(tmp_path / name), FakeClock())
            for _ in range(commits):
                it.commit("g", "t", 0, mine, commits=module.VERSION_STEP)
            asyncio.run(it.persist())

    def loaded() -> tuple[OffsetTable, CountingFile]:
        file = CountingFile(tmp_path / "own")
        table_ = OffsetTable(file, FakeClock(), other_file=JsonFile(tmp_path / "other"))
        table_.load()
        return table_, file

    it, file = loaded()
    assert it.committed("g", "t", 0) == offset
    # Its version goes on from the one that was taken over.
    assert it.version.counter == (1 + (other or 0) if offset == 2 else own)
    asyncio.run(it.persist())
    assert file.saves == (offset == 2), "what comes from the other file is written to its own"
    assert loaded()[0].committed("g", "t", 0) == offset
    if file.saves:
        (tmp_path / "other").unlink()
        assert loaded()[0].committed("g", "t", 0) == offset


@pytest.mark.parametrize("what", ["entries", "file", "answer"])
def test_offset_that_just_fits_is_kept_and_one_more_is_not(tmp_path: Path, what: str) -> None:
    full, _ = table(tmp_path)
    for queue_id in range(3):
        assert full.commit("g", "t", queue_id, 5)
    for room in (0, -1):
        it, _ = table(tmp_path)
        if what == "entries":
            it._room._entries_max = full._room.entries + room
        elif what == "file":
            it._room._bytes_max = full._room.used + room
        else:
            it._answer._bytes_max = full._answer.used + room
        kept = [it.commit("g", "t", queue_id, 5) for queue_id in range(4)]
        assert kept == [True, True, room == 0, False]
        assert len(it) == sum(kept)


def test_slaves_are_answered_with_committed_offsets_alone(tmp_path: Path) -> None:
    it, _ = table(tmp_path)
    it.commit("g", "t", 0, 5)
    it.note_pull("g", "t", 1, 7)
    body = ConsumerOffsetBody.decode(asyncio.run(it.encoded()))
    assert body.offsets == {"t@g": {0: 5}}
    assert not body.pull_offsets
    assert body.version == it.version


@pytest.mark.parametrize(
    ("keys", "queues", "turns"), [(30, 5, 3), (29, 5, 2), (3, 100, 3), (19, 0, 0)]
)
def test_copy_of_the_offsets_gives_way_after_so_many_offsets_and_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: int, queues: int, turns: int
) -> None:
    given: list[int] = []

    async def give_way() -> None:
        given.append(1)

    monkeypatch.setattr(module, "give_way", give_way)
    # A key counts as five offsets: ten keys of five offsets each are one slice.
    monkeypatch.setattr(module, "OFFSETS_AT_ONCE", 100)
    monkeypatch.setattr(module, "KEYS_AT_ONCE", 2)
    it, _ = table(tmp_path)
    for key in range(keys):
        for queue in range(queues):
            it.commit(f"g{key}", "t", queue, 5)
    copied = asyncio.run(module._copied(it._committed))
    assert (len(given), len(copied)) == (turns, keys if queues else 0)


def test_offsets_of_a_group_in_a_topic_are_removed_and_no_others(tmp_path: Path) -> None:
    it, _ = table(tmp_path)
    for group in ("g", "h"):
        for topic in ("t", "u"):
            it.commit(group, topic, 1, 5)
            it.reset(group, topic, 0, 3)
    asyncio.run(it.remove("t", "g"))
    pairs = [("g", "t"), ("g", "u"), ("h", "t"), ("h", "u")]
    assert [it.committed(*pair, 1) for pair in pairs] == [None, 5, 5, 5]
    assert [it.pending_reset(*pair, 0) for pair in pairs] == [None, 3, 3, 3]
    assert (it.topics_of("g"), it.groups_of("t")) == (["u"], ["h"])
