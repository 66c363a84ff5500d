"""The seam of tables: files of JSON, and a form in memory that keeps row by row."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pytest

from roquet.base.errors import Corrupt
from roquet.broker.messages.schedule import DelayLevels, DelaySchedule
from roquet.model.data_version import DataVersion
from roquet.model.request_mode import GroupRequestMode
from roquet.model.subscription import ExpressionType, SubscriptionData
from roquet.store.tables.files import JsonFile
from roquet.store.tables.filters import FilterTable
from roquet.store.tables.key_values import KeyValues, Rows, TableCodec, TableForm
from roquet.store.tables.request_modes import RequestModes
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

K = TypeVar("K")
V = TypeVar("V")


class MemoryForm:
    """Rows that outlive the tables over them, with every row that was written."""

    def __init__(self) -> None:
        self.durable: dict[Any, Any] = {}
        self.version: DataVersion | None = None
        self.written: list[Any] = []

    def table(self, codec: TableCodec[K, V]) -> KeyValues[K, V]:
        del codec
        return _MemoryTable(self)


class _MemoryTable(Generic[K, V]):
    def __init__(self, form: MemoryForm) -> None:
        self._form = form
        self._rows: dict[K, V] = {}
        self._fresh: dict[K, None] = {}

    @property
    def version(self) -> DataVersion | None:
        return self._form.version

    def load(self) -> None:
        self._rows, self._fresh = dict(self._form.durable), {}

    def get(self, key: K) -> V | None:
        return self._rows.get(key)

    def put(self, key: K, value: V) -> None:
        self._rows[key] = value
        self._fresh[key] = None

    def delete(self, key: K) -> V | None:
        if key in self._rows:
            self._fresh[key] = None
        return self._rows.pop(key, None)

    def rows(self) -> Mapping[K, V]:
        return dict(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_changed(self) -> bool:
        return bool(self._fresh)

    async def flush(self, version: DataVersion | None = None) -> bool:
        fresh, self._fresh = self._fresh, {}
        for key in fresh:
            self._form.written.append(key)
            self._form.durable.pop(key, None)
            if key in self._rows:
                self._form.durable[key] = self._rows[key]
        self._form.version = version if fresh else self._form.version
        return bool(fresh)


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
        table.load()
        assert (len(table), table.version, table.is_changed) == (0, None, False)
        assert await table.flush() is False
        for key, value in (("a", 1), ("b", 2), ("c", 3), ("b", 4)):
            table.put(key, value)
        assert (table.delete("a"), table.delete("x"), table.get("a")) == (1, None, None)
        assert table.is_changed
        assert await table.flush(DataVersion(timestamp=1, counter=7)) is True
        assert (table.is_changed, await table.flush()) == (False, False)
        table.put("d", 5)
        again = form.table(CODEC)
        again.load()
        assert list(again.rows().items()) == [("b", 4), ("c", 3)]
        assert again.version == DataVersion(timestamp=1, counter=7)
        rows = again.rows()
        again.delete("b")
        assert (dict(rows), len(again)) == ({"b": 4, "c": 3}, 1)

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
        assert await table.flush() is True
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
