"""What a consumer gives to the application's loops, and when these loops end."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, ParamSpec

import pytest

from remoting_harness import on_loop
from roquet.base.errors import RoquetError, Unreachable
from roquet.client._consuming.handout import Handout
from roquet.client._received import Received
from roquet.model.message import StoredMessage
from roquet.model.queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

P = ParamSpec("P")


def bounded(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on the loop; one that waits for what never comes fails."""

    @functools.wraps(test)
    async def run(*given: P.args, **named: P.kwargs) -> None:
        async with asyncio.timeout(30.0):
            await test(*given, **named)

    return on_loop(run)


def handout(count: int, *, taken: tuple[int, ...] = ()) -> Handout:
    """Return one with messages 0 to `count`, of which those in `taken` are ours no more."""
    made = Handout(lambda it: it.queue_offset not in taken)
    for offset in range(count):
        made.put(received(offset))
    return made


def received(offset: int) -> Received:
    message = StoredMessage(
        topic="t",
        body=b"",
        properties={},
        msg_id="",
        queue_id=0,
        queue_offset=offset,
        physical_offset=offset,
        store_size=100,
        born_timestamp=0,
        born_host="127.0.0.1:1",
        store_timestamp=0,
        store_host="127.0.0.1:1",
    )
    return Received(message, MessageQueue("t", "b", 0), lambda *_: None)


def offsets(messages: list[Received]) -> list[int]:
    return [it.queue_offset for it in messages]


@bounded
async def test_new_handout_gives_what_is_ours_in_order() -> None:
    made = handout(3, taken=(1,))
    found = [await made.next(), await made.next()]
    assert offsets([it for it in found if it is not None]) == [0, 2]


@bounded
async def test_end_comes_after_what_is_there_and_stop_before_it() -> None:
    ended, stopped = handout(1), handout(1)
    ended.end()
    stopped.stop()
    first = await ended.next()
    assert first is not None
    for made in (ended, stopped):
        # Each of several loops meets the end.
        assert [await made.next(), await made.next()] == [None, None]
        assert await made.next_many(3, None, 1.0) == []


@bounded
async def test_stop_wakes_a_loop_that_waits() -> None:
    made = handout(0)
    waits = [asyncio.ensure_future(made.next()) for _ in range(3)]
    await asyncio.sleep(0)
    made.stop()
    assert await asyncio.gather(*waits) == [None] * 3


@bounded
async def test_failure_is_raised_to_each_loop_and_the_first_one_counts() -> None:
    made = handout(0)
    error: RoquetError = Unreachable("b")
    assert made.fail(error)
    assert not made.fail(Unreachable("c"))
    for _ in range(2):
        with pytest.raises(Unreachable) as raised:
            await made.next()
        assert raised.value is error


@bounded
@pytest.mark.parametrize("end", ["end", "stop", "fail"])
async def test_handout_opened_again_gives_nothing_of_before(end: str) -> None:
    made = handout(2)
    if end == "fail":
        made.fail(Unreachable("b"))
    else:
        getattr(made, end)()
    made.open()
    made.put(received(7))
    found = await made.next()
    assert found is not None
    assert found.queue_offset == 7
    # Nothing says any more that there is an end.
    assert await made.next_many(1, 0.0, 0.0) == []
    assert made.waiting(1) == []


@bounded
@pytest.mark.parametrize("linger_s", [0.0, 60.0])
async def test_next_many_takes_as_many_as_asked_for_of_what_is_there(linger_s: float) -> None:
    made = handout(7, taken=(1,))
    assert offsets(await made.next_many(4, None, linger_s)) == [0, 2, 3, 4]
    assert offsets(await made.next_many(1, None, linger_s)) == [5]
    assert offsets(await made.next_many(1, None, linger_s)) == [6]


@bounded
async def test_next_many_lingers_until_the_batch_is_full() -> None:
    made = handout(1)
    batch = asyncio.ensure_future(made.next_many(4, None, 60.0))
    for offset in (1, 2):
        await asyncio.sleep(0)
        made.put(received(offset))
    await asyncio.sleep(0)
    assert not batch.done()
    for offset in (3, 4):
        made.put(received(offset))
    assert offsets(await batch) == [0, 1, 2, 3]
    assert offsets(made.waiting(9)) == [4]


@bounded
async def test_waiting_ends_at_the_end_and_leaves_it_for_others() -> None:
    made = handout(2)
    made.end()
    assert offsets(made.waiting(9)) == [0, 1]
    assert made.waiting(9) == []
    assert await made.next() is None


@bounded
async def test_withdrawn_messages_are_given_to_nobody() -> None:
    made = handout(3, taken=(1,))
    assert offsets(made.withdraw()) == [0, 2]
    assert made.waiting(1) == []
    assert await made.next() is None
