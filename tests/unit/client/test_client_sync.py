"""The blocking client has the calls of the asyncio one, with the same parameters."""

from __future__ import annotations

import inspect

import pytest

import roquet
from roquet import client
from roquet.base.errors import UsageError
from roquet.client import sync
from roquet.service.loop_thread import LoopThread

PAIRS = [
    (client.MQ, sync.MQ),
    (client.Producer, sync.Producer),
    (client.TransactionProducer, sync.TransactionProducer),
    (client.Transaction, sync.Transaction),
    (client.Consumer, sync.Consumer),
    (client.PullConsumer, sync.PullConsumer),
    (client.SimpleConsumer, sync.SimpleConsumer),
    (client.Received, sync.Received),
    (client.Admin, sync.Admin),
]
FIELDS = {"message", "queue", "receipt", "state"}
ASYNC_ONLY = {
    "asked",
    # What the Spark sink calls.
    "end",
    "send_encoded",
    "send_half",
    "sequences",
    # What brokers call, not applications.
    "describe",
    "rebalance_soon",
    "reset_offsets",
    "progress",
    "running_info",
    "consume_directly",
    # Starts concurrent tasks; threads of the application's own do the same here.
    "run",
    "run_batches",
}


def _public(kind: type) -> dict[str, object]:
    return {name: item for name, item in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize(("inner", "outer"), PAIRS, ids=lambda kind: kind.__name__)
def test_the_same_calls(inner: type, outer: type) -> None:
    theirs, ours = _public(inner), _public(outer)
    missing = {name for name in theirs if name not in ASYNC_ONLY and not hasattr(outer, name)}
    assert missing <= FIELDS
    assert set(ours) - set(theirs) <= FIELDS
    for name, item in ours.items():
        # `run` takes awaitables there and a function here; what may be around `admin` is awaited.
        if inspect.isfunction(item) and name not in ("run", "admin"):
            expected = inspect.signature(getattr(inner, name)).parameters
            found = inspect.signature(item).parameters
            assert list(found.values()) == list(expected.values()), name


def test_connect_takes_the_same() -> None:
    assert (
        inspect.signature(client.connect).parameters == inspect.signature(sync.connect).parameters
    )


def test_a_loop_thread() -> None:
    loop = LoopThread("test")

    async def answer() -> int:
        return 42

    async def fail() -> None:
        raise KeyError("x")

    async def inside() -> None:
        loop.run(answer())

    assert loop.run(answer()) == 42
    assert loop.call(lambda: 7) == 7
    with pytest.raises(KeyError):
        loop.run(fail())
    with pytest.raises(UsageError):
        loop.run(inside())
    loop.close()
    loop.close()
    with pytest.raises(UsageError):
        loop.run(answer())


def test_it_can_be_imported_under_its_public_name() -> None:
    import roquet.sync as public  # noqa: PLC0415  (the statement is what is tested)

    assert public.connect is sync.connect
    assert roquet.sync is public
