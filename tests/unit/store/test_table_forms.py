"""The seam of tables: files of JSON, and a form in memory that keeps row by row."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pytest

from roquet.base.errors import Corrupt
from roquet.broker.messages.schedule import DelayLevels, DelaySchedule
from roquet.model.data_version import DataVersion
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.request_mode import GroupRequestMode
from roquet.model.subscription import ExpressionType, SubscriptionData
from roquet.model.topic import TopicConfig
from roquet.store.tables.files import JsonFile
from roquet.store.tables.filters import FilterTable
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.key_values import KeyValues, Rows, TableCodec, TableForm, TwoTablesCodec
from roquet.store.tables.offsets import OffsetTable
from roquet.store.tables.request_modes import RequestModes
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Mapping

K = TypeVar("K")
V = TypeVar("V")
L = TypeVar("L")
W = TypeVar("W")


class MemoryForm:
    """Rows that outlive the tables over them, with every row that was written."""

    def __init__(self, path: Path = Path("memory")) -> None:
        self.path = path
        self.durable: list[dict[Any, Any]] = [{}, {}]
        self.version: DataVersion | None = None
        self.is_there = False
        self.written: list[Any] = []
        self.fault: OSError | None = None

    def table(self, codec: TableCodec[K, V]) -> KeyValues[K, V]:
        del codec
        return _MemoryTable(self, [])

    def two_tables(
        self, codec: TwoTablesCodec[K, V, L, W]
    ) -> tuple[KeyValues[K, V], KeyValues[L, W]]:
        del codec
        kept: list[_MemoryTable[Any, Any]] = []
        return _MemoryTable(self, kept), _MemoryTable(self, kept)


class _MemoryTable(Generic[K, V]):
    def __init__(self, form: MemoryForm, kept: list[_MemoryTable[Any, Any]]) -> None:
        self._form = form
        self._place = len(kept)
        self._kept = kept
        kept.append(self)
        self._rows: dict[K, V] = {}
        self._fresh: dict[K, None] = {}
        self._is_due = False

    @property
    def version(self) -> DataVersion | None:
        return self._form.version

    @property
    def may_be_older(self) -> bool:
        return False

    def load(self) -> bool:
        for table in self._kept:
            durable = self._form.durable[table._place]
            table._rows, table._fresh = copy.deepcopy(durable), {}
            table._is_due = False
        return self._form.is_there

    def get(self, key: K) -> V | None:
        return self._rows.get(key)

    def put(self, key: K, value: V, *, waits: bool = False) -> None:
        self._rows[key] = value
        self.changed(key, waits=waits)

    def changed(self, key: K, *, waits: bool = False) -> None:
        self._fresh[key] = None
        self._is_due |= not waits

    def delete(self, key: K) -> V | None:
        if key in self._rows:
            self.changed(key)
        return self._rows.pop(key, None)

    def replace(self, rows: Mapping[K, V]) -> None:
        for key in (*self._rows, *rows):
            self.changed(key)
        self._rows = dict(rows)

    def touch(self) -> None:
        self._is_due = True

    def rows(self) -> Mapping[K, V]:
        return dict(self._rows)

    def key_list(self) -> list[K]:
        return list(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_changed(self) -> bool:
        return any(table._is_due for table in self._kept)

    async def flush(self, version: DataVersion | None = None) -> Rows[K, V] | None:
        if self._form.fault is not None:
            raise self._form.fault
        if not self.is_changed:
            return None
        for table in self._kept:
            fresh, table._fresh, table._is_due = table._fresh, {}, False
            durable = self._form.durable[table._place]
            for key in fresh:
                self._form.written.append(key)
                durable.pop(key, None)
                if key in table._rows:
                    durable[key] = copy.deepcopy(table._rows[key])
        self._form.version, self._form.is_there = version, True
        return Rows(self.rows(), version)


def _decode(data: bytes) -> Rows[str, int]:
    found = json.loads(data)
    return Rows(found["rows"], DataVersion(timestamp=1, counter=found["counter"]))


def _encode(table: Rows[str, int]) -> bytes:
    counter = table.version.counter if table.version is not None else 0
    return json.dumps({"rows": dict(table.rows), "counter": counter}).encode()


CODEC = TableCodec(_decode, _encode)


@pytest.fixture(params=["json", "memory"])
def form(request: pytest.FixtureRequest, tmp_path: Path) -> TableForm:
    return JsonFile(tmp_path / "t.json") if request.param == "json" else MemoryForm()


def test_rows_that_were_flushed_are_loaded_and_others_are_not(form: TableForm) -> None:
    async def run() -> None:
        table = form.table(CODEC)
        assert table.load() is False
        assert (len(table), table.version, table.is_changed) == (0, None, False)
        assert await table.flush() is None
        for key, value in (("a", 1), ("b", 2), ("c", 3), ("b", 4)):
            table.put(key, value)
        assert (table.delete("a"), table.delete("x"), table.get("a")) == (1, None, None)
        assert table.is_changed
        version = DataVersion(timestamp=1, counter=7)
        assert await table.flush(version) == Rows({"b": 4, "c": 3}, version)
        assert (table.is_changed, await table.flush()) == (False, None)
        table.put("d", 5)
        again = form.table(CODEC)
        assert again.load() is True
        assert list(again.rows().items()) == [("b", 4), ("c", 3)]
        assert again.version == DataVersion(timestamp=1, counter=7)
        rows = again.rows()
        again.delete("b")
        again.put("c", 7)
        assert (dict(rows), again.key_list(), again.get("c")) == ({"b": 4, "c": 3}, ["c"], 7)
        again.put("e", 1, waits=True)
        await again.flush()
        again.put("e", 2, waits=True)
        assert await again.flush() is None, "it waits for another change"
        again.touch()
        assert await again.flush() == Rows({"c": 7, "e": 2})
        again.replace({"z": 9})
        assert await again.flush() == Rows({"z": 9})
        last = form.table(CODEC)
        last.load()
        assert dict(last.rows()) == {"z": 9}

    asyncio.run(run())


def test_json_table_whose_write_failed_is_written_by_the_next_flush(tmp_path: Path) -> None:
    async def run() -> None:
        file = JsonFile(tmp_path / "d" / "t.json")
        table = file.table(CODEC)
        table.put("a", 1)
        (tmp_path / "d").write_text("in the way of the folder")
        with pytest.raises(OSError, match="d"):
            await table.flush()
        assert table.is_changed
        (tmp_path / "d").unlink()
        assert await table.flush() is not None
        again = JsonFile(file.path).table(CODEC)
        again.load()
        assert again.rows() == {"a": 1}
        file.path.write_text("{")
        with pytest.raises(Corrupt):
            JsonFile(file.path).table(CODEC).load()

    asyncio.run(run())


def _mode(topic: str, number: int) -> GroupRequestMode:
    return GroupRequestMode(topic=topic, group="g", pop_share=number)


def test_request_modes_are_kept_by_any_form(form: TableForm) -> None:
    async def run() -> None:
        modes = RequestModes(form)
        modes.load()
        modes.put(_mode("t", 1))
        modes.put(_mode("u", 2))
        await modes.persist()
        modes.put(_mode("u", 3))
        await modes.persist()
        again = RequestModes(form)
        again.load()
        assert (again.get("t", "g"), again.get("u", "g")) == (_mode("t", 1), _mode("u", 3))
        again.replace(dataclasses.replace(again.export(), modes=(_mode("v", 4),)))
        await again.persist()
        last = RequestModes(form)
        last.load()
        assert last.export().modes == (_mode("v", 4),)

    asyncio.run(run())


def test_form_in_memory_writes_only_the_rows_that_changed() -> None:
    async def run() -> None:
        form = MemoryForm()
        modes = RequestModes(form)
        for number in range(100):
            modes.put(_mode(f"t{number}", 0))
        await modes.persist()
        form.written.clear()
        modes.put(_mode("t7", 1))
        await modes.persist()
        await modes.persist()
        assert form.written == [("t7", "g")]

    asyncio.run(run())


def test_filters_are_kept_by_any_form_and_count_as_dead_after_a_start(form: TableForm) -> None:
    async def run() -> None:
        clock = FakeClock()
        table = FilterTable(form, clock)
        sql = SubscriptionData(
            topic="t", expression="a > 1", expression_type=ExpressionType.SQL92, version=5
        )
        table.load()
        table.follow("g", {"t": sql})
        await table.persist()
        again = FilterTable(form, clock)
        again.load()
        found = again.find("t", "g")
        assert found is not None
        assert (found.expression, found.version) == ("a > 1", 5)
        again.follow("g", None)
        await clock.advance(25 * 3600)
        await again.persist()
        last = FilterTable(form, clock)
        last.load()
        assert last.find("t", "g") is None

    asyncio.run(run())


class _NoLog:
    async def flush(self) -> None:
        return


def test_delay_offsets_are_kept_by_any_form(form: TableForm) -> None:
    async def run() -> None:
        def made() -> DelaySchedule:
            store: Any = _NoLog()
            traffic: Any = None
            return DelaySchedule(DelayLevels(), store, form, FakeClock(), traffic=traffic)

        schedule = made()
        await schedule.start()
        await schedule.persist()
        assert schedule.export().offsets == {}
        schedule._levels[3].offset = 17
        await schedule.persist()
        again = made()
        await again.start()
        assert again.export().offsets == {3: 17}
        assert again.export().version == schedule.export().version

    asyncio.run(run())


def test_topics_are_kept_by_any_form(form: TableForm) -> None:
    async def run() -> None:
        def made() -> TopicTable:
            table = TopicTable(form, TopicTableConfig(cluster="c", broker_name="b"), FakeClock())
            table.load()
            return table

        table = made()
        built_in = set(table.all())
        table.put(TopicConfig(name="kept"), TopicConfig(name="gone"))
        await table.persist()
        table.remove("gone")
        await table.persist()
        table.put(TopicConfig(name="lost"))
        again = made()
        assert set(again.all()) == {*built_in, "kept"}
        assert again.version == DataVersion(
            timestamp=table.version.timestamp, counter=table.version.counter - 1
        )
        assert again.is_complete()
        again.touch()
        await again.persist()
        assert made().version == again.version

    asyncio.run(run())


def test_topic_is_not_durable_before_its_form_has_kept_it() -> None:
    async def run() -> None:
        form = MemoryForm()
        table = TopicTable(form, TopicTableConfig(broker_name="b"), FakeClock())
        await table.persist()
        form.written.clear()
        table.put(TopicConfig(name="t"))
        form.fault = OSError(5, "broken")
        with pytest.raises(OSError, match="broken"):
            await table.persist()
        assert not table.is_durable("t")
        form.fault = None
        await table.persist()
        assert table.is_durable("t")
        assert form.written == ["t"], "no other row was written"

    asyncio.run(run())


def test_groups_and_what_they_may_not_read_are_kept_by_any_form(form: TableForm) -> None:
    async def run() -> None:
        def made() -> GroupTable:
            table = GroupTable(form, GroupTableConfig(), FakeClock())
            table.load()
            return table

        table = made()
        table.put(SubscriptionGroupConfig(name="g"), SubscriptionGroupConfig(name="h"))
        table.set_forbidden("g", "t", 1)
        table.set_forbidden("h", "t", 3)
        await table.persist()
        table.remove("h")
        table.set_forbidden("g", "u", 2)
        await table.persist()
        again = made()
        assert again.all() == table.all()
        assert again.all_forbidden() == {"g": {"t": 1, "u": 2}}
        assert again.version == table.version
        handed = again.all_forbidden()
        again.set_forbidden("g", "u", 0)
        assert handed == {"g": {"t": 1, "u": 2}}

    asyncio.run(run())


def test_offsets_are_kept_by_any_form(form: TableForm) -> None:
    async def run() -> None:
        def made() -> OffsetTable:
            table = OffsetTable(form, FakeClock())
            table.load()
            return table

        table = made()
        table.commit("g", "t", 0, 5)
        table.commit("h", "t", 0, 7)
        await table.persist()
        table.commit("g", "t", 1, 6)
        table.note_pull("g", "t", 0, 9)
        await table.remove_group("h")
        await table.persist()
        table.commit("g", "t", 0, 8)
        again = made()
        assert again.queues("g", "t") == {0: 5, 1: 6}
        assert (again.groups(), again.pulled("g", "t", 0)) == (["g"], 9)
        assert again.version == DataVersion(
            timestamp=table.version.timestamp, counter=table.version.counter
        )

    asyncio.run(run())


def test_change_of_one_offset_writes_one_row_to_a_form_that_keeps_rows() -> None:
    async def run() -> None:
        form = MemoryForm()
        table = OffsetTable(form, FakeClock())
        for number in range(100):
            table.commit(f"g{number}", "t", 0, 1)
        await table.persist()
        form.written.clear()
        table.note_pull("g3", "t", 0, 2)
        await table.persist()
        assert form.written == [], "what was pulled goes along with what was committed"
        table.commit("g7", "t", 0, 2)
        await table.persist()
        assert form.written == ["t@g7", "t@g3"]

    asyncio.run(run())
