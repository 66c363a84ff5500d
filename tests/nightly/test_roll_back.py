"""The way back: a store of the present release, opened by an earlier one, and opened again.

The earlier release is the first that marks its stores (f1f976a), as in the test of the way forward.
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING

import pytest

from broker_harness import ext, properties, records
from earlier_release import earlier_release
from roquet.base.clock import SystemClock
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.store.marks.format import NAME
from roquet.store.upkeep.check import Level, check
from roquet.testing.cluster import send_command
from roquet.testing.process import BrokerProcess, Caller
from transaction_harness import COMMIT, GROUP, end_command

if TYPE_CHECKING:
    from pathlib import Path

EARLIER = "f1f976a"
TOPICS = ("orders", "bills")
QUEUES = 4
DELAYED, HALF = "later", "paid"
READERS = "billing"
AGES = {"beginTimestamp": "0", "endTimestamp": "9999999999999"}
SETTINGS = {"messageDelayLevel": "1s 6s 2h", "transactionTimeOut": "3600000"}


class Ledger:
    """What was acknowledged: the bodies of each queue in their order, offsets, an open half."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.bodies: dict[tuple[str, int], list[bytes]] = {}
        self.offset = 0
        self.half = (0, 0)
        self.rounds = 0

    async def make_group(self, it: Caller) -> None:
        """Create the group of readers."""
        body = json.dumps({"groupName": READERS, "retryMaxTimes": 3}).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await it.call(Command(code, {}, body=body))).code == 0

    async def write(self, it: Caller) -> None:
        """Send to every queue, more than a file of the log and of a queue hold."""
        self.rounds += 1
        for number in range(300):
            for topic in TOPICS:
                queue = number % QUEUES
                body = f"{topic} {self.rounds} {number} ".encode() + b"x" * (number * 7 % 2000)
                text = f"UNIQ_KEY\x01{topic}{self.rounds}U{number}\x02"
                text += f"KEYS\x01{topic}{self.rounds}k{number}\x02TAGS\x01even\x02"
                answer = await it.send(topic, body, queue, text)
                assert answer.code == 0, answer.remark
                there = self.bodies.setdefault((topic, queue), [])
                assert ext(answer)["queueOffset"] == str(len(there))
                there.append(body)
        self.offset += 10
        fields = {"consumerGroup": READERS, "topic": "orders", "queueId": "1"}
        commit = fields | {"commitOffset": str(self.offset)}
        answer = await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
        assert answer.code == 0

    async def leave_open(self, it: Caller) -> None:
        """Leave what a broker must finish: messages with a delay, a transaction."""
        now = str(SystemClock().now_ms())
        for level in (2, 3):
            text = f"UNIQ_KEY\x01D{level}\x02DELAY\x01{level}\x02"
            answer = await it.call(send_command(DELAYED, b"delayed", 0, text, g=now))
            assert answer.code == 0
        text = f"UNIQ_KEY\x01H\x02TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02"
        half = await it.call(send_command(HALF, b"half", 0, text, f="4", a=GROUP))
        assert half.code == 0
        self.half = int(ext(half)["msgId"][16:], 16), int(ext(half)["queueOffset"])

    async def same(self, it: Caller) -> None:
        """Check that everything is there."""
        for (topic, queue), bodies in self.bodies.items():
            assert await read(it, topic, queue, len(bodies)) == bodies, (topic, queue)
        fields = {"consumerGroup": READERS, "topic": "orders", "queueId": "1"}
        answer = await it.call(Command(RequestCode.QUERY_CONSUMER_OFFSET, fields))
        assert (answer.code, ext(answer)["offset"]) == (0, str(self.offset))
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        group = await it.call(Command(code, {"group": READERS}))
        assert json.loads(group.body)["retryMaxTimes"] == 3
        for wanted in range(1, self.rounds + 1):
            query = {"topic": "bills", "key": f"bills{wanted}k299", "maxNum": "9"} | AGES
            found = await it.call(Command(RequestCode.QUERY_MESSAGE, query))
            assert found.code == 0, (wanted, found.remark)
            assert f"bills {wanted} 299 ".encode() in found.body
        query = {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": "2"}
        answer = await it.call(Command(RequestCode.GET_MAX_OFFSET, query))
        assert ext(answer)["offset"] == "1", "what is due in two hours still waits"


async def read(it: Caller, topic: str, queue: int, count: int) -> list[bytes]:
    """Return the bodies of a queue, once as many as `count` can be read."""
    found: list[bytes] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            answer = await it.pull(topic, len(found), queueId=str(queue))
            found += [record.body for record in records(answer)]
            if not answer.body:
                await asyncio.sleep(0.05)
    answer = await it.pull(topic, len(found), queueId=str(queue))
    assert answer.code != 0, f"more than {count} messages"
    return found


async def offsets_written(store: Path, offset: int) -> None:
    """Wait until the timer has written the offset of the readers, as a kill asks for."""
    file = store / "config" / "consumerOffset.json"
    async with asyncio.timeout(60):
        while True:
            text = file.read_text() if file.exists() else ""
            if f"1:{offset}" in "".join(text.replace('"', "").split()):
                return
            await asyncio.sleep(0.1)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_earlier_release_goes_on_with_a_store_of_this_one(
    tmp_path: Path, how: signal.Signals
) -> None:
    environment = earlier_release(EARLIER)
    store = tmp_path / "store"
    shared = {**SETTINGS, "storePathRootDir": str(store)}

    def process(name: str, env: dict[str, str] | None = None, **more: str) -> BrokerProcess:
        (tmp_path / name).mkdir()
        return BrokerProcess(tmp_path / name, env=env, **shared, **more)

    ledger = Ledger()

    async def present(it: Caller) -> None:
        await ledger.make_group(it)
        await ledger.write(it)
        await offsets_written(store, ledger.offset)
        await ledger.leave_open(it)

    async def earlier(it: Caller) -> None:
        await ledger.same(it)
        (delayed,) = await read(it, DELAYED, 0, 1)
        assert delayed == b"delayed"
        assert (await it.call(end_command(COMMIT, *ledger.half))).code == 0
        assert await read(it, HALF, 0, 1) == [b"half"]
        await ledger.write(it)
        await offsets_written(store, ledger.offset)

    async def present_again(it: Caller) -> None:
        await ledger.same(it)
        answer = await it.pull(DELAYED)
        assert [properties(one)["UNIQ_KEY"] for one in records(answer)] == ["D2"]
        assert await read(it, HALF, 0, 1) == [b"half"]
        await ledger.write(it)
        await ledger.same(it)

    async def story() -> None:
        # One message a sync: the present release puts zeros ahead of such messages.
        for broker, tell in (
            (process("present", flushDiskType="SYNC_FLUSH"), present),
            (process("earlier", environment), earlier),
            (process("again"), present_again),
        ):
            try:
                async with broker.client() as it:
                    await tell(it)
                code = broker.kill(how)
                assert code == (0 if how == signal.SIGTERM else -how), broker.output
            finally:
                broker.kill()

    asyncio.run(story())
    assert json.loads((store / NAME).read_bytes())["format"] == 1
    if how == signal.SIGTERM:
        assert check(store).worst in (Level.FINE, Level.NOTE)
