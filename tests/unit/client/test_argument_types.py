"""Arguments of a wrong type are a UsageError that names the argument, and nothing is sent."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roquet
import roquet.sync
from roquet.base.errors import UsageError
from roquet.client import ConsumerOptions, ProducerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = "rmq://127.0.0.1:1"
OBJECTS = st.builds(object) | st.complex_numbers() | st.binary(min_size=1)
WRONG = (
    OBJECTS
    | st.lists(st.integers(), min_size=1)
    | st.dictionaries(st.integers(), st.integers(), min_size=1)
)
"""What no argument takes but a body."""
SENDING = ("topic", "tag", "keys", "properties", "delay", "at", "order_key", "queue", "timeout_s")
MORE = ("delay_level", "selector")
MADE = ("producer", "pull_consumer", "consumer", "simple_consumer")


async def _ended(call: Callable[[], Any]) -> None:
    result = call()
    if inspect.isawaitable(result):
        await result


@given(wrong=WRONG)
@pytest.mark.parametrize("name", [*SENDING, *MORE])
def test_send_with_a_wrong_type_is_a_usage_error(name: str, wrong: object) -> None:
    async def story() -> None:
        async with roquet.connect(NOBODY) as mq, mq.producer() as producer:
            values: dict[str, Any] = {"topic": "t", "body": b"m", name: wrong}
            with pytest.raises(UsageError):
                await producer.send(**values)
            if name in MORE:
                return
            if name != "timeout_s":
                values.pop("timeout_s", None)
                with pytest.raises(UsageError):
                    _ = await producer.submit(**values)

    asyncio.run(story())


@given(wrong=WRONG)
@pytest.mark.parametrize("module", [roquet, roquet.sync])
@pytest.mark.parametrize("name", ["url", "tls", "credentials", "trace", "on_error"])
def test_connect_with_a_wrong_type_is_a_usage_error(module: Any, name: str, wrong: object) -> None:
    with pytest.raises(UsageError):
        module.connect(**{"url": NOBODY, name: wrong})


@given(wrong=WRONG)
@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("name", ["group", "options", "subscriptions"])
def test_producer_or_consumer_with_a_wrong_type_is_a_usage_error(
    kind: str, name: str, wrong: object
) -> None:
    values: dict[str, Any] = {"group": "g"}
    if "subscriptions" in inspect.signature(getattr(roquet.MQ, kind)).parameters:
        values["subscriptions"] = "t"
    elif name == "subscriptions":
        return
    with pytest.raises(UsageError):
        getattr(roquet.connect(NOBODY), kind)(**{**values, name: wrong})


@given(wrong=WRONG)
@pytest.mark.parametrize(
    "name", ["recall", "reply", "queues", "send_batch", "messages", "unique_keys", "request"]
)
def test_other_calls_of_a_producer_with_a_wrong_type_are_a_usage_error(
    name: str, wrong: Any
) -> None:
    async def story() -> None:
        async with roquet.connect(NOBODY) as mq, mq.producer() as producer:
            calls: dict[str, Callable[[], Any]] = {
                "recall": lambda: producer.recall(wrong),
                "reply": lambda: producer.reply(wrong, b"x"),
                "queues": lambda: producer.queues(wrong),
                "send_batch": lambda: producer.send_batch(wrong, [b"x"]),
                "messages": lambda: producer.send_batch("t", [wrong, 5]),
                "unique_keys": lambda: producer.send_batch("t", [b"x"], unique_keys=wrong),
                "request": lambda: producer.request("t", b"x", timeout_s=wrong),
            }
            with pytest.raises(UsageError):
                await _ended(calls[name])

    asyncio.run(story())


@given(wrong=WRONG)
@pytest.mark.parametrize("kind", [ProducerOptions, ConsumerOptions])
def test_options_with_a_wrong_type_are_a_usage_error(kind: Any, wrong: object) -> None:
    plain = [it for it in dataclasses.fields(kind) if isinstance(it.default, (int, float, str))]
    assert len(plain) > 8
    for field in plain:
        with pytest.raises(UsageError, match=field.name):
            kind(**{field.name: wrong})
