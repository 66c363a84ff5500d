"""One broker of two is stopped (SIGSTOP): it takes connections and bytes, and answers nothing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from grpc_calls import Calls, acknowledgement, consumer, message, producer, received
from roquet.base.clock import SystemClock
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.proxy import messages as pb
from roquet.proxy.app import build_cluster
from roquet.proxy.cluster.config import ClusterConfig
from roquet.proxy.cluster.silence import SILENT_MS
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.services.produce import transaction_id
from roquet.testing.cluster import cluster
from roquet.testing.java import BrokerPlan, Process, free_port, roquet_process

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from roquet.testing.cluster import Cluster

GROUP = "g"
# The stopped broker is asked about first: brokers are asked in the order of their names.
LOUD, SILENT = "b2", "b1"
BOUND_S = 3.0
BUSY_S = 2.0
"""What a busy machine may take beside."""


@dataclasses.dataclass
class World(Calls):
    """A client of a proxy before two brokers, one of which can be stopped."""

    behind: Cluster = dataclasses.field(kw_only=True)
    process: Process = dataclasses.field(kw_only=True)

    def silence(self) -> None:
        """Stop the one broker, and see that all its threads stand."""
        os.kill(self.process.pid, signal.SIGSTOP)
        # Threads go on until the one that takes the signal has had its turn.
        stats = list(Path(f"/proc/{self.process.pid}/task").glob("*/stat"))
        for _ in range(3000):
            if all(one.read_text().rpartition(") ")[2].startswith("T") for one in stats):
                return
            time.sleep(0.01)
        raise AssertionError("the broker does not stop")


async def prepare(behind: Cluster, address: str) -> None:
    """Make topics and the group at a broker."""
    for name, kind in {"Normal": "NORMAL", "Ends": "TRANSACTION", "Cold": "NORMAL"}.items():
        fields = {"topic": name, "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        fields |= {"attributes": f"+message.type={kind}", "defaultTopic": "TBW102"}
        command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        assert (await behind.call(command, address)).code == 0
    body = b'{"groupName":"%s","consumeEnable":true}' % GROUP.encode()
    command = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body=body)
    assert (await behind.call(command, address)).code == 0


@contextlib.asynccontextmanager
async def half_silent(
    folder: Path, rules: ProxyLimits, **cluster_rules: Any
) -> AsyncGenerator[World]:
    async with cluster(folder, LOUD) as behind:
        home = folder / "process"
        home.mkdir()
        port = free_port(random.Random())
        plan = BrokerPlan(
            SILENT, port, behind.name_servers, home / "store", {"timerWheelEnable": "true"}
        )
        process = roquet_process(SILENT, home, "broker", "-c", str(plan.write(home)))
        await asyncio.to_thread(process.start)
        try:
            behind.broker.metadata.groups.put(SubscriptionGroupConfig(name=GROUP))
            for address in (behind.address, plan.address):
                await prepare(behind, address)
            config = ClusterConfig(name_servers=behind.name_servers, **cluster_rules)
            clock, rng = SystemClock(), random.Random(7)
            built = build_cluster(config, "127.0.0.1", rules, clock, rng)
            async with built.app:
                yield World(built.front, behind.broker, built.port, behind=behind, process=process)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            await asyncio.to_thread(process.stop)


def run(
    folder: Path,
    tell: Callable[[World], Awaitable[None]],
    rules: ProxyLimits | None = None,
    **cluster_rules: Any,
) -> None:
    async def main() -> None:
        async with half_silent(folder, rules or ProxyLimits(port=0), **cluster_rules) as world:
            await tell(world)

    asyncio.run(main())


async def within_bound(call: Awaitable[Any]) -> Any:
    """Return the answer of a call that may not take longer than calls do."""
    return await asyncio.wait_for(call, BOUND_S + BUSY_S)


async def filled(world: World, count: int = 40, **more: Any) -> dict[str, list[Any]]:
    """Send messages, receive them all, and return them by the broker that has them."""
    for number in range(count):
        assert (await world.send(message(body=b"m%d" % number))).status.code == Code.OK
    found: dict[str, list[Any]] = {LOUD: [], SILENT: []}
    for name, messages in found.items():
        # Sends go to the queues of both in turn.
        while len(messages) < count // 2:
            request = received("Normal", GROUP, **more)
            request.message_queue.broker.name = name
            answered = await world.raw("ReceiveMessage", request.SerializeToString())
            parts = [pb.ReceiveMessageResponse.FromString(part) for part in answered.parts]
            messages += [part.message for part in parts if part.HasField("message")]
    return found


def test_acks_at_a_silent_broker_end_within_the_bound_and_others_succeed(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        found = await filled(world)
        world.silence()
        mixed = [each for pair in zip(found[SILENT], found[LOUD], strict=False) for each in pair]
        assert len(mixed) > 16
        request = acknowledgement("Normal", GROUP, *mixed)
        answer = await within_bound(world.call("AckMessage", request))
        assert answer.status.code == Code.MULTIPLE_RESULTS
        codes = [entry.status.code for entry in answer.entries]
        assert codes == [Code.PROXY_TIMEOUT, Code.OK] * (len(mixed) // 2)
        ids = [entry.message_id for entry in answer.entries]
        assert ids == [one.system_properties.message_id for one in mixed]

    run(tmp_path, tell)


def test_messages_of_a_broker_are_renewed_while_another_is_silent(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await world.show(consumer(GROUP, 2, "Normal"))
        found = await filled(world, auto_renew=True)
        assert len(world.front.renewals) == 40
        world.silence()
        began = time.monotonic()
        await asyncio.wait_for(world.front.renewals.round(), BOUND_S + BUSY_S)
        assert time.monotonic() - began < BOUND_S + BUSY_S
        # Those of the other broker have new handles: their first ones do not count any more.
        held: list[str] = []
        for key in keys(world, found[LOUD]):
            async with world.front.renewals.settling(*key) as handle:
                held.append(handle)
        known = [one.system_properties.receipt_handle for one in found[LOUD]]
        assert all(now != before for now, before in zip(held, known, strict=True))
        # Those of the silent one stay under renewal.
        assert len(world.front.renewals) == len(found[SILENT])

    # So far ahead that each is due at once.
    run(tmp_path, tell, ProxyLimits(port=0, renew_ahead_ms=100_000))


def keys(world: World, messages: list[Any]) -> list[tuple[Any, str, str, str]]:
    """Return what the front knows messages by."""
    context = world.front.context(world.head("AckMessage"))
    session = world.front.sessions.find(context)
    found: list[tuple[Any, str, str, str]] = []
    for one in messages:
        system = one.system_properties
        found.append((session, GROUP, system.message_id, system.receipt_handle))
    return found


def test_settled_in_vain_a_message_is_renewed_further(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await world.show(consumer(GROUP, 2, "Normal"))
        found = await filled(world, 8, auto_renew=True)
        world.silence()
        request = acknowledgement("Normal", GROUP, found[SILENT][0])
        answer = await within_bound(world.call("AckMessage", request))
        assert answer.status.code == Code.PROXY_TIMEOUT
        assert len(world.front.renewals) == 8
        os.kill(world.process.pid, signal.SIGCONT)
        await asyncio.sleep(SILENT_MS / 1000)  # until then the broker is not asked
        answer = await within_bound(world.call("AckMessage", request))
        assert answer.status.code == Code.OK, answer
        assert len(world.front.renewals) == 7

    run(tmp_path, tell)


@pytest.mark.parametrize("topic", ["Normal", "Cold"])
def test_topic_is_served_by_one_broker_while_the_first_is_silent(
    tmp_path: Path, topic: str
) -> None:
    async def tell(world: World) -> None:
        for _ in range(4):
            assert (await world.send(message("Normal"))).status.code == Code.OK
        world.silence()
        # What is known of the topic is too old now.
        await asyncio.sleep(1.1)
        codes = [
            status.status.code
            for status in await asyncio.gather(
                *(within_bound(world.send(message(topic))) for _ in range(8))
            )
        ]
        assert sorted(set(codes)) == [Code.OK, Code.PROXY_TIMEOUT]
        assert codes.count(Code.OK) == 4
        # The group is known by asking a broker as well.
        request = received(topic, GROUP)
        request.message_queue.broker.name = LOUD
        answered = await within_bound(world.raw("ReceiveMessage", request.SerializeToString()))
        first = pb.ReceiveMessageResponse.FromString(answered.parts[0])
        assert first.status.code == Code.OK, first

    run(tmp_path, tell, topic_s=1, group_s=1)


def test_ends_of_transactions_wait_for_no_other_broker(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await world.show(producer("Ends"))
        await world.send(message("Normal"))
        world.silence()

        async def end(number: int) -> int:
            request = pb.EndTransactionRequest(
                transaction_id=transaction_id(number, number, LOUD), resolution=1
            )
            request.topic.name = "Ends"
            answer = await within_bound(world.call("EndTransaction", request))
            return int(answer.status.code)

        # There is no such half message, which the broker says.
        codes = await asyncio.gather(*(end(number) for number in range(6)))
        assert Code.PROXY_TIMEOUT not in codes
        # The same for those who come later.
        assert await end(7) != Code.PROXY_TIMEOUT

    run(tmp_path, tell)


def test_settings_of_many_topics_are_answered_within_the_bound(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        world.silence()
        names = ["Normal", "Cold", "Ends"]
        assert await within_bound(world.show(producer(*names))) is None
        assert world.told.commands[-1].HasField("settings")

    run(tmp_path, tell)
