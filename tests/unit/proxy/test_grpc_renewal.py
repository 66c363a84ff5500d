"""Messages of push consumers stay invisible until they are settled or their client is gone."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from grpc_calls import Calls, consumer, fronted, message
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.limits import ProxyLimits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

PUSH, SIMPLE = 2, 3
SHORT = ProxyLimits(
    port=0, invisible_ms=2_000, renew_ahead_ms=1_500, renew_every_ms=100, polling_min_ms=0
)


def run(folder: Path, tell: Callable[[Calls], Awaitable[None]], rules: ProxyLimits = SHORT) -> None:
    async def main() -> None:
        async with fronted(folder, rules) as calls:
            await tell(calls)

    asyncio.run(main())


async def popped(calls: Calls, kind: int) -> Any:
    """Send a message and have a consumer of a kind receive it with auto-renewal."""
    assert await calls.show(consumer("g", kind, "Normal")) is None
    assert (await calls.send(message())).status.code == Code.OK
    while calls.broker.store.dispatch_behind():  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    parts = await calls.receive("Normal", "g", auto_renew=True)
    assert [part.WhichOneof("content") for part in parts] == [
        "status",
        "message",
        "delivery_timestamp",
    ]
    return parts[1].message


async def settled(calls: Calls, found: Any) -> int:
    """Acknowledge a message by the handle that its client has; return the code."""
    request = pb.AckMessageRequest()
    request.topic.name, request.group.name = "Normal", "g"
    system = found.system_properties
    request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
    return int((await calls.call("AckMessage", request)).status.code)


async def came_again(calls: Calls, wait_ms: int) -> bool:
    parts = await calls.receive("Normal", "g", wait_ms=wait_ms)
    return int(parts[0].status.code) == Code.OK


def test_message_is_renewed_and_settled_by_the_handle_that_the_client_has(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        found = await popped(calls, PUSH)
        assert len(calls.front.renewals) == 1
        (held,) = calls.front.renewals._held.values()
        while held.current == held.known:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        # Longer than it was made invisible for at first: it would be here again.
        assert not await came_again(calls, 4_000)
        assert await settled(calls, found) == Code.OK
        assert len(calls.front.renewals) == 0
        assert await settled(calls, found) == Code.INVALID_RECEIPT_HANDLE

    run(tmp_path, tell)


def test_message_of_a_simple_consumer_is_not_renewed(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await popped(calls, SIMPLE)
        assert len(calls.front.renewals) == 0

    run(tmp_path, tell)


def test_message_of_a_client_that_goes_comes_back_soon(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await popped(calls, PUSH)
        end = pb.NotifyClientTerminationRequest()
        end.group.name = "g"
        assert (await calls.call("NotifyClientTermination", end)).status.code == Code.OK
        while len(calls.front.renewals):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        # A minute was its invisible time.
        assert await came_again(calls, 20_000)

    run(tmp_path, tell, ProxyLimits(port=0))


def test_message_of_a_client_that_vanished_is_not_renewed(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await popped(calls, PUSH)
        (held,) = calls.front.renewals._held.values()
        # Its telemetry stream is what shows that it lives.
        calls.front.sessions.left(held.context, calls.told)
        while len(calls.front.renewals):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert held.current == held.known
        assert await came_again(calls, 20_000)

    run(tmp_path, tell)


def test_renewal_ends_after_its_longest_time_and_the_message_comes_back(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await popped(calls, PUSH)
        (held,) = calls.front.renewals._held.values()
        while len(calls.front.renewals):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert held.renewals == 0
        assert await came_again(calls, 20_000)

    # By the time that it is due, it has been held too long.
    rules = ProxyLimits(
        port=0, invisible_ms=3_000, renew_ahead_ms=1_000, renew_every_ms=100, renew_for_ms=1_000
    )
    run(tmp_path, tell, rules)


def test_renewals_are_bounded_and_what_is_beyond_comes_back_by_itself(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await popped(calls, PUSH)
        assert len(calls.front.renewals) == 0
        assert await came_again(calls, 20_000)

    run(tmp_path, tell, ProxyLimits(port=0, invisible_ms=2_000, renewed_max=0))


class Closed:
    """A client that is gone when the first message is sent."""

    def __init__(self, after: int) -> None:
        self._left = after

    async def send(self, message: bytes) -> bool:
        assert message
        self._left -= 1
        return self._left >= 0

    async def send_framed(self, messages: bytes) -> bool:
        """Have nothing of several parts in one write."""
        assert messages
        return False

    def has_room(self) -> bool:
        """Take each message at once."""
        return True

    def turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Be the only call of the connection."""
        return contextlib.nullcontext()

    def finish(self, status: int, text: str) -> None:
        """Take the end."""


def test_messages_that_cannot_be_sent_come_back_soon(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        for number in range(3):
            assert (await calls.send(message(message_id=f"{number:034X}"))).status.code == Code.OK
        while calls.broker.store.dispatch_behind():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        request = pb.ReceiveMessageRequest(batch_size=32)
        request.group.name, request.message_queue.topic.name = "g", "Normal"
        request.filter_expression.expression = "*"
        request.invisible_duration.seconds = 600
        data = request.SerializeToString()
        # The status and one message reach it.
        await calls.front.serve(calls.head("ReceiveMessage"), data, Closed(2))
        parts = await calls.receive("Normal", "g", wait_ms=20_000)
        assert parts[0].status.code == Code.OK
        ids = {part.message.system_properties.message_id for part in parts[1:-1]}
        assert ids <= {f"{number:034X}" for number in (1, 2)}
        assert ids

    run(tmp_path, tell, ProxyLimits(port=0))
