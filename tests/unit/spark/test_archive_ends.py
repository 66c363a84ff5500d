"""A lake has one message at an offset, also when two jobs archive one topic at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from roquet.spark.jobs.archiving.ends import Ends, begins
from roquet.spark.jobs.storage.catalog import Catalog, Entry
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.jobs.storage.plain_files import PlainFiles
from roquet.spark.jobs.storage.summary import Part
from roquet.spark.offsets import QueueKey

if TYPE_CHECKING:
    from pathlib import Path


def catalog(folder: Path) -> Catalog:
    # A few commits are read by the driver alone.
    spark: Any = None
    return Catalog(spark, PlainFiles(), str(folder))


def part(name: str, begin: int, end: int, *, topic: str = "T", day: str = "2026-01-01") -> Entry:
    return Entry(Part(topic, day, name), "b", 0, begin, end, end - begin, 7)


def commit(lake: Catalog, *entries: Entry) -> None:
    lake.commit(entries[0].place.part, [it.json() for it in entries])


def test_rows_that_another_job_has_committed_meanwhile_are_refused(tmp_path: Path) -> None:
    mine, other = catalog(tmp_path), catalog(tmp_path)
    commit(mine, part("first", 0, 10))
    ends = Ends(mine)
    ends.read()
    new = part("mine", 10, 20)
    ends.check(begins([new]))
    commit(other, part("other", 10, 12))
    ends.refresh()
    with pytest.raises(LakeError, match=r"up to offset 12, .* from 10.* another job archives"):
        ends.check(begins([new]))


def test_another_job_with_other_topics_is_in_nobodys_way(tmp_path: Path) -> None:
    mine, other = catalog(tmp_path), catalog(tmp_path)
    ends = Ends(mine)
    ends.read()
    commit(other, part("other", 0, 12, topic="Other"))
    ends.refresh()
    days = [part("mine", 5, 9, day="2026-01-02"), part("mine", 0, 5)]
    assert begins(days) == {QueueKey("T", "b", 0): 0}
    ends.check(begins(days))
    commit(mine, *days)
    ends.add(days)
    ends.refresh()
    assert ends.by_queue == {QueueKey("T", "b", 0): 9, QueueKey("Other", "b", 0): 12}


def test_damaged_commit_of_another_job_is_named(tmp_path: Path) -> None:
    lake = catalog(tmp_path)
    ends = Ends(lake)
    ends.read()
    commit(lake, part("mine", 0, 5))
    (tmp_path / "_catalog" / "torn.json").write_text("")
    with pytest.raises(LakeError, match=r"torn\.json is damaged: it is empty"):
        ends.refresh()
