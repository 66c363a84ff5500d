"""Queues, tables and a log of checkpoints in memory, for pops of the group g from the topic t."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from roquet.broker.api.pop import PopRequest
from roquet.broker.clients.expressions import EVERYTHING
from roquet.broker.pop.buffer.rules import BufferConfig
from roquet.broker.pop.buffer.service import PopBuffer
from roquet.broker.pop.receive.browse import PopBrowser
from roquet.broker.pop.receive.in_flight import PopInFlight
from roquet.broker.pop.receive.locks import PopLocks
from roquet.broker.pop.receive.orders import PopOrders
from roquet.broker.pop.receive.reads import Draws
from roquet.broker.pop.receive.rules import PopConfig
from roquet.broker.pop.receive.service import PopService
from roquet.model.topic import TopicConfig
from roquet.protocol import properties as props
from roquet.protocol.messages.records import encode_record
from roquet.store.records import Record
from roquet.store.results import GetResult, GetStatus, PutResult, PutStatus, StoreFault
from roquet.store.tables.deletions import Deletions
from roquet.store.tables.files import JsonFile
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roquet.broker.api.pop import PopResult
    from roquet.protocol.pop.records import PopCheckpoint

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
RETRY, RETRY_V2 = "%RETRY%g_t", "%RETRY%g+t"


def record(topic: str, queue_id: int, offset: int, **properties: str) -> bytes:
    text = props.write(properties).encode()
    return encode_record(
        Record(
            size=0,
            body_crc=0,
            queue_id=queue_id,
            flag=0,
            queue_offset=offset,
            physical_offset=offset,
            sys_flag=0,
            born_timestamp=1,
            born_host=HOST,
            store_timestamp=1,
            store_host=HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"body",
            topic=topic,
            properties=text,
            magic=0xDAA320A7,
        )
    )


class Queues:
    """Queues of messages with tags codes; `answers` stand for what else a read may say."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        self.answers: dict[tuple[str, int], list[GetResult | StoreFault]] = {}
        self.reads: list[tuple[str, int, int, int]] = []
        self.behind = 0

    def fill(self, topic: str, queue_id: int, *codes: int, **properties: str) -> None:
        queue = self.queues.setdefault((topic, queue_id), [])
        for code in codes:
            queue.append((code, record(topic, queue_id, len(queue), **properties)))

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        tag_codes: Any = None,
        filter_by: Any = None,
    ) -> GetResult:
        self.reads.append((topic, queue_id, offset, max_messages))
        answers = self.answers.get((topic, queue_id))
        if answers:
            answer = answers.pop(0)
            if isinstance(answer, StoreFault):
                raise answer
            return answer
        queue = self.queues.get((topic, queue_id), [])
        end = len(queue)
        if offset >= end:
            return result(GetStatus.OFFSET_OVERFLOW_ONE, offset, end)
        codes = filter_by if tag_codes is None else tag_codes
        found: list[bytes] = []
        at = offset
        while at < end and len(found) < max_messages:
            code, data = queue[at]
            at += 1
            if codes is None or code in codes:
                found.append(data)
        status = GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE
        return result(status, at, end, found)

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        queue = self.queues.get((topic, queue_id), [])
        return [(0, 0, code) for code, _ in queue[offset : offset + count]]

    def min_offset(self, _topic: str, _queue_id: int) -> int:
        return 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get((topic, queue_id), []))

    def dispatch_behind(self) -> int:
        return self.behind


def result(status: GetStatus, after: int, end: int, found: list[bytes] | None = None) -> GetResult:
    found = found or []
    return GetResult(
        status=status,
        next_begin_offset=after,
        min_offset=0,
        max_offset=end,
        records=b"".join(found),
        messages=len(found),
    )


class World:
    """Pops of group g from topic t, which has two queues."""

    def __init__(self, folder: Path, draw: int = 99, **rules: Any) -> None:
        self.clock = FakeClock()
        self.store = Queues()
        self.topics = {"t": TopicConfig(name="t", read_queues=2, write_queues=2)}
        self.known: dict[tuple[str, int], int] = {}
        self.resets: set[str] = set()
        self.full = False
        self.wanted = EVERYTHING
        self.stored: list[tuple[PopCheckpoint, int]] = []
        self.status = PutStatus.PUT_OK
        self.on_store: Callable[[], object] = lambda: None
        self.contended: list[tuple[str, str, int]] = []
        self.alarms: list[Any] = []
        self.pulled: list[tuple[Any, ...]] = []
        self.locks = PopLocks()
        self.orders = PopOrders(
            JsonFile(folder / "orders.json"), self.clock, Deletions(None, self.clock)
        )
        self.in_flight = PopInFlight(self.clock, is_enabled=True)
        self.rules = PopConfig(**({"limits_in_flight": False} | rules))
        offsets = SimpleNamespace(
            begin=self._begin,
            passed=self._commit,
            move=self._commit,
            is_reset=lambda key: key[0] in self.resets,
            rest=self._rest,
            seen=self._seen,
        )
        rng: Any = SimpleNamespace(randrange=lambda _n: draw)
        draws = Draws(rng)
        shared: dict[str, Any] = {
            "checks": SimpleNamespace(
                pop=lambda _r: (self.topics["t"], self.wanted),
                urgent_percent=lambda *_: 0,
                peek=lambda _r: self.topics["t"],
                notification=lambda _r: (self.topics["t"], self.wanted),
            ),
            "topics": self.topics,
            "store": self.store,
            "offsets": offsets,
            "orders": self.orders,
            "rules": self.rules,
            "draws": draws,
        }
        self.browser = PopBrowser(**shared)
        self.service = PopService(
            **shared,
            locks=self.locks,
            revive_log=cast(
                "Any", SimpleNamespace(next_queue=lambda: 5, checkpoint=self._checkpoint)
            ),
            buffer=PopBuffer(
                cast("Any", SimpleNamespace()),
                cast("Any", SimpleNamespace()),
                is_gone=lambda *_: False,
                rules=BufferConfig(),
                clock=self.clock,
            ),
            in_flight=self.in_flight,
            alarms=cast("Any", SimpleNamespace(set=self.alarms.append)),
            traffic=cast("Any", SimpleNamespace(pulled=lambda *news: self.pulled.append(news))),
            broker_name="b",
            clock=self.clock,
            on_contended=self._on_contended,
        )

    def _on_contended(self, topic: str, group: str, queue_id: int) -> None:
        self.contended.append((topic, group, queue_id))

    def _begin(self, _g: str, topic: str, queue_id: int, *, from_first: bool) -> Any:
        del from_first
        if self.full:
            return None
        return self.known.get((topic, queue_id), 0), topic in self.resets

    def _commit(
        self, _g: str, topic: str, queue_id: int, offset: int, *, begin: int | None = None
    ) -> None:
        assert begin is None or begin <= offset
        self.known[topic, queue_id] = offset

    def _seen(self, _g: str, topic: str, queue_id: int, *, from_first: bool = True) -> int:
        del from_first
        return self.known.get((topic, queue_id), 0)

    def _rest(self, _g: str, topic: str, queue_id: int, *, from_first: bool = True) -> int:
        del from_first
        return self.store.max_offset(topic, queue_id) - self.known.get((topic, queue_id), 0)

    async def _checkpoint(self, checkpoint: PopCheckpoint, revive_queue: int) -> PutResult:
        self.on_store()
        if self.status is PutStatus.PUT_OK:
            self.stored.append((checkpoint, revive_queue))
        return PutResult(self.status)

    def retry(self, name: str = RETRY, queues: int = 1) -> None:
        self.topics[name] = TopicConfig(name=name, read_queues=queues, write_queues=queues)

    async def pop(self, most: int = 32, queue_id: int = -1, **changes: Any) -> PopResult:
        fields: dict[str, Any] = {
            "topic": "t",
            "group": "g",
            "queue_id": queue_id,
            "max_messages": most,
            "invisible_ms": 60_000,
            "poll_ms": 0,
            "born_ms": 0,
        }
        return await self.service.pop(PopRequest(**(fields | changes)))

    def counted(self) -> dict[tuple[str, int], int]:
        places = [("t", 0), ("t", 1), (RETRY, 0)]
        found = {place: self.in_flight.count((place[0], "g", place[1])) for place in places}
        return {place: count for place, count in found.items() if count}


def shown(got: PopResult) -> list[tuple[str, int, list[int]]]:
    return [(it.topic, it.queue_id, list(it.offsets)) for it in got.taken]
