"""A producer of transactions on a raw connection, and what lies in a broker's queues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from broker_harness import dispatched, ext
from roquet.base.clock import SystemClock
from roquet.protocol.bodies.clients import HeartbeatData
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import FLAG_ONE_WAY, Command
from roquet.remoting.client import Client
from roquet.remoting.router import Request, Route
from roquet.store.records import Record, read_records
from roquet.testing.cluster import send_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.broker.app import Broker
    from roquet.testing.cluster import Cluster

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
QUICK = {"transactionTimeOut": "50", "transactionCheckInterval": "50"}
GROUP = "tx_producers"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


def of(broker: Broker, topic: str, queue_id: int = 0) -> list[Record]:
    """Return all messages of a queue."""
    store = broker.store
    units = store.units(topic, queue_id, store.min_offset(topic, queue_id), 1000)
    return [record for unit in units if (record := store.record(*unit[:2])) is not None]


async def until(reached: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Wait for something that the broker does by itself."""
    try:
        async with asyncio.timeout(timeout_s):
            while not reached():  # noqa: ASYNC110  (another part does it)
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s} s: {what}") from None


class TxProducer:
    """Sends half messages; `decide` answers checks, None leaves them without an answer."""

    def __init__(
        self,
        it: Cluster,
        decide: Callable[[Record], int | None] | None = None,
        group: str = GROUP,
    ) -> None:
        self.it = it
        self.group = group
        self.decide = decide
        self.asked: list[tuple[dict[str, str], Record]] = []
        route = Route((RequestCode.CHECK_TRANSACTION_STATE,), self._asked, "answers")
        self.client = Client(clock=SystemClock(), handlers=[route])

    async def __aenter__(self) -> Self:
        await self.client.start()
        data = HeartbeatData(client_id="tx@1", producers=(self.group,), consumers=())
        answer = await self.client.call(
            self.it.address, Command(RequestCode.HEART_BEAT, ext={}, body=data.encode()), 20.0
        )
        assert answer.code == 0
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.stop()

    async def _asked(self, request: Request) -> None:
        assert request.command.is_one_way
        fields = request.command.ext or {}
        (record,) = read_records(request.command.body)
        self.asked.append((fields, record))
        state = None if self.decide is None else self.decide(record)
        if state is not None:
            command = end_command(
                state,
                int(fields["commitLogOffset"]),
                int(fields["tranStateTableOffset"]),
                fromTransactionCheck="true",
                producerGroup=self.group,
            )
            command.flag = FLAG_ONE_WAY
            await self.client.call_one_way(self.it.address, command)


async def send_half(
    it: Cluster, topic: str, key: str, *more: str, body: bytes = b"half"
) -> Command:
    """Send a half message; its UNIQ_KEY is `key`, `more` are properties as name=value."""
    given = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": GROUP}
    given |= dict(one.split("=", 1) for one in more)
    text = "".join(f"{name}\x01{value}\x02" for name, value in given.items())
    answer = await it.call(send_command(topic, body, 0, text, f="4", a=GROUP))
    assert answer.code == 0, answer.remark
    await dispatched(it)
    return answer


def end_command(state: int, log_offset: int, half_offset: int, /, **fields: str) -> Command:
    """Return an END_TRANSACTION request; `fields` replace header fields."""
    header = {
        "producerGroup": GROUP,
        "tranStateTableOffset": str(half_offset),
        "commitLogOffset": str(log_offset),
        "commitOrRollback": str(state),
        "fromTransactionCheck": "false",
        "msgId": "id",
        **fields,
    }
    return Command(RequestCode.END_TRANSACTION, ext=header)


async def end(it: Cluster, state: int, sent: Command, **fields: str) -> Command:
    """End the transaction of a half message."""
    found = ext(sent)
    log_offset = int(found["msgId"][16:], 16)
    answer = await it.call(end_command(state, log_offset, int(found["queueOffset"]), **fields))
    await dispatched(it)
    return answer
