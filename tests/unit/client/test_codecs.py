"""Values as bodies: each codec, its failures, and the way through a broker and back."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import Int64Value, StringValue

import roquet
from broker_harness import play
from roquet.base.errors import DecodeFailed, UsageError
from roquet.client import Avro, ConsumerOptions, Json, Message, Msgspec, ProducerOptions, Protobuf
from roquet.client.codecs import decoded, encoded

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "number", "type": "long"}, {"name": "name", "type": "string"}],
}
LONGER = {
    **SCHEMA,
    "fields": [*SCHEMA["fields"], {"name": "paid", "type": "boolean", "default": False}],
}


class Order(msgspec.Struct):
    number: int
    name: str = ""


@dataclasses.dataclass
class Plain:
    number: int


class Reversed:
    """A codec of an application."""

    def encode(self, value: object, /) -> bytes:
        assert isinstance(value, str)
        return value[::-1].encode()

    def decode(self, body: bytes, /) -> object:
        return body.decode()[::-1]


CASES: list[tuple[Any, object, object]] = [
    (Json(), {"a": [1, "é", None, 2.5]}, {"a": [1, "é", None, 2.5]}),
    (Json(), "text", "text"),
    (Msgspec(Order), Order(7, "x"), Order(7, "x")),
    (Msgspec(Order, form="msgpack"), Order(7, "x"), Order(7, "x")),
    (Msgspec(Plain), Plain(3), Plain(3)),
    (Msgspec(dict[str, int]), {"a": 1}, {"a": 1}),
    (Protobuf(StringValue), StringValue(value="x"), StringValue(value="x")),
    (Avro(SCHEMA), {"number": 1, "name": "x"}, {"number": 1, "name": "x"}),
    (
        Avro(SCHEMA, reader=LONGER),
        {"number": 1, "name": "x"},
        {"number": 1, "name": "x", "paid": False},
    ),
    (Reversed(), "abc", "abc"),
]


@pytest.mark.parametrize(("codec", "value", "back"), CASES)
def test_a_value_comes_back(codec: Any, value: object, back: object) -> None:
    assert decoded(codec, encoded(codec, value)) == back


def test_bodies_are_those_of_other_languages() -> None:
    assert encoded(Json(), {"a": "é"}) == b'{"a":"\xc3\xa9"}'
    assert encoded(Msgspec(Order), Order(1)) == b'{"number":1,"name":""}'
    assert encoded(Avro(SCHEMA), {"number": 1, "name": "x"}) == b"\x02\x02x"


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (Json(), float("nan")),
        (Json(), b"bytes"),
        (Json(), {1, 2}),
        (Msgspec(Order), Plain(1).__dict__ | {"number": "no"}),
        (Msgspec(Order), Order("no")),  # type: ignore[arg-type]
        (Protobuf(StringValue), Int64Value(value=1)),
        (Protobuf(StringValue), StringValue()),
        (Avro(SCHEMA), {"number": "no", "name": "x"}),
        (Avro(SCHEMA), {"number": 1, "name": "x", "more": 1}),
        (Avro(SCHEMA), 5),
        (Reversed(), 5),
    ],
)
def test_values_that_do_not_fit_are_refused(codec: Any, value: object) -> None:
    with pytest.raises(UsageError):
        encoded(codec, value)


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        (Json(), b"{"),
        (Json(), b"\xff"),
        (Json(), b"[" * 100_000),
        (Msgspec(Order), b'{"number":"7"}'),
        (Msgspec(Order, form="msgpack"), b"\xc1"),
        (Protobuf(StringValue), b"\xff\xff"),
        (Avro(SCHEMA), b"\x02\x02"),
        (Avro(SCHEMA), b"\x02\x02xmore"),
        (Reversed(), b"\xff"),
    ],
)
def test_bodies_that_cannot_be_read_are_told(codec: Any, body: bytes) -> None:
    with pytest.raises(DecodeFailed, match=type(codec).__name__):
        decoded(codec, body)


def test_codecs_that_cannot_be_made_are_told() -> None:
    for make in (
        lambda: Protobuf(int),  # type: ignore[type-var]
        lambda: Msgspec(type("Unknown", (), {"__init__": None}) | list[int]),  # type: ignore[arg-type]
        lambda: Avro({"type": "no such type"}),
    ):
        with pytest.raises(UsageError):
            make()


def test_a_missing_library_is_named_when_the_codec_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(UsageError, match="pip install fastavro"):
        Avro(SCHEMA)


def test_no_codec_is_imported_before_it_is_made() -> None:
    program = "import roquet, sys; roquet.connect; roquet.Json(); print(*sys.modules)"

    async def modules() -> set[str]:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await child.communicate()
        return set(out.decode().split())

    loaded = asyncio.run(modules())
    assert "roquet.client.codecs.avro" in loaded
    assert loaded.isdisjoint({"fastavro", "google.protobuf"})


def test_values_come_back_through_a_broker(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        async with roquet.connect(f"rmq://{it.name_servers}") as mq, asyncio.timeout(60):
            for number, (codec, value, back) in enumerate(CASES):
                topic = f"t{number}"
                await mq.admin().topics.create(topic, 1)
                options = ProducerOptions(codec=codec)
                async with mq.producer() as one, mq.producer(options=options) as all_of_them:
                    await one.send(topic, value, codec=codec)
                    await all_of_them.send(topic, value)
                    await (await all_of_them.submit(topic, value))
                    await all_of_them.send_batch(topic, [value, value])
                    await all_of_them.send_one_way(topic, value)
                    raw = Message(topic, encoded(codec, value))
                    await all_of_them.send(raw)
                    with pytest.raises(UsageError, match="whole Message"):
                        await one.send(raw, codec=codec)
                consuming = ConsumerOptions(codec=codec, handover_s=0.0)
                ordered = bool(number % 2)
                async with mq.consumer(
                    "g", topic, start="earliest", ordered=ordered, options=consuming
                ) as consumer:
                    for _ in range(7):
                        received = await consumer.receive(20)
                        assert received is not None
                        assert received.value == back
                        received.ack()

    play(tmp_path, tell)


def test_consumers_without_a_codec_or_with_the_wrong_one_are_told(tmp_path: Path) -> None:
    def block(address: str) -> None:
        with roquet.sync.connect(f"rmq://{address}") as mq, mq.producer() as producer:
            producer.send("t", {"a": 1}, codec=Json())
            producer.submit("t", {"a": 2}, codec=Json()).result(20)
            with pytest.raises(UsageError, match="codec"):
                producer.send("t", {"a": 1})
            with mq.consumer("plain", "t", start="earliest") as consumer:
                received = consumer.receive(20)
                assert received is not None
                with pytest.raises(UsageError, match="no codec"):
                    _ = received.value
            options = ConsumerOptions(codec=Protobuf(Struct))
            with mq.consumer("wrong", "t", start="earliest", options=options) as consumer:
                received = consumer.receive(20)
                assert received is not None
                with pytest.raises(DecodeFailed):
                    _ = received.value

    async def tell(it: Cluster) -> None:
        async with roquet.connect(f"rmq://{it.name_servers}") as mq:
            await mq.admin().topics.create("t", 1)
        await asyncio.to_thread(block, it.name_servers)

    play(tmp_path, tell)
