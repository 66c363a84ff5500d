"""Acknowledgements of popped messages, plain ones and odd ones, drawn from a seed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pop_harness import ack_command, invisible_command, pop_command
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.pop.batch_ack import BatchAck, BatchAckBody

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from roquet.protocol.pop.handle import ReceiptHandle


@dataclasses.dataclass(frozen=True, slots=True)
class Flight:
    """A message in flight."""

    topic: str
    """The topic that it lies in."""
    group: str
    handle: ReceiptHandle


def drawn_pop(rng: random.Random, topic: str, group: str, now_ms: int, oddness: float) -> Command:
    """Return a pop that does not wait: mostly plain, of one queue or all, with tags or not."""
    given = {
        "consumerGroup": group,
        "bornTime": str(now_ms),
        "maxMsgNums": str(rng.choice((1, 5, 32))),
        "invisibleTime": str(rng.choice((10_000, 60_000, 77_777))),
        "queueId": rng.choice(("-1", "-1", "-1", "0", "3")),
        "initMode": rng.choice(("0", "1")),
        "exp": rng.choice(("*", "*", "*", "", "a", "a || b", "none")),
    }
    if rng.random() < oddness:
        name, value = rng.choice(_ODD_POPS)
        given[name] = value
    command = pop_command(topic, **given)
    if rng.random() < oddness / 4:
        ext = dict(command.ext or {})
        del ext[rng.choice(list(ext))]
        command = dataclasses.replace(command, ext=ext)
    if rng.random() < oddness / 4:
        command = dataclasses.replace(command, body=b"ignored")
    return command


_ODD_POPS = (
    ("queueId", "99"),
    ("queueId", "-7"),
    ("queueId", "x"),
    ("maxMsgNums", "0"),
    ("maxMsgNums", "33"),
    ("maxMsgNums", "-1"),
    ("invisibleTime", "0"),
    ("invisibleTime", "500"),
    ("invisibleTime", "-1"),
    ("invisibleTime", "259200000"),
    ("invisibleTime", "259200001"),
    ("bornTime", "0"),
    ("bornTime", "1600000000000"),
    ("order", "true"),
    ("order", "FALSE"),
    ("order", "no"),
    ("exp", "a ||"),
    ("exp", "||"),
    ("exp", "a&&b"),
    ("exp", "ä"),
    ("expType", "SQL92"),
    ("expType", "tag"),
    ("expType", ""),
    ("topic", "NoSuchTopic"),
    ("topic", "WriteOnly"),
    ("topic", "%RETRY%cg_Plain"),
    ("topic", "%RETRY%cg+Plain"),
    ("topic", "%LMQ%light"),
    ("topic", ""),
    ("consumerGroup", "nobody knows it"),
    ("consumerGroup", 'a"b\\c'),
    ("consumerGroup", ""),
    ("attemptId", "one"),
    ("unknown", "ignored"),
)


def settles(rng: random.Random, flight: Flight, oddness: float) -> list[Command]:
    """Return what a client says about a message: mostly one plain acknowledgement."""
    if rng.random() >= oddness:
        return rng.choice(_PLAIN)(rng, flight)
    return rng.choice(_ODD)(rng, flight)


def plain_ack(flight: Flight, **fields: str) -> Command:
    """Return an acknowledgement with nothing odd about it."""
    given = {"consumerGroup": flight.group, **fields}
    return ack_command(flight.handle, flight.topic, **given)


def _with_handle(flight: Flight, **fields: object) -> list[Command]:
    handle = flight.handle._replace(**fields)  # type: ignore[arg-type]
    return [plain_ack(flight, extraInfo=handle.encode())]


def _field(rng: random.Random, flight: Flight) -> list[Command]:
    name, value = rng.choice(
        (
            ("offset", "-1"),
            ("offset", "999999"),
            ("offset", "007"),
            ("offset", "9223372036854775808"),
            ("offset", "+1"),
            ("queueId", "-1"),
            ("queueId", "99"),
            ("queueId", "x"),
            ("topic", "NoSuchTopic"),
            ("topic", "WriteOnly"),
            ("topic", ""),
            ("consumerGroup", ""),
            ("consumerGroup", 'a"b\\c'),
            ("consumerGroup", "größe"),
            ("consumerGroup", "nobody knows it"),
            ("consumerGroup", "a\x01b"),
            ("extraInfo", ""),
            ("extraInfo", flight.handle.encode() + " 1"),
            ("extraInfo", flight.handle.encode().replace(" ", "  ", 1)),
            ("extraInfo", flight.handle.encode().rpartition(" ")[0]),
            ("extraInfo", flight.handle.encode().rpartition(" ")[0] + " x"),
            ("extraInfo", flight.handle.encode() + " " + "9" * 1024),
            ("liteTopic", ""),
            ("liteTopic", "light"),
            ("unknown", "ignored"),
        )
    )
    return [plain_ack(flight, **{name: value})]


def _missing(rng: random.Random, flight: Flight) -> list[Command]:
    command = plain_ack(flight)
    given = dict(command.ext or {})
    del given[rng.choice(list(given))]
    return [dataclasses.replace(command, ext=given)]


def _place(rng: random.Random, flight: Flight) -> list[Command]:
    queue = rng.choice((-1, 7, 8, 999, 2**31 - 1))
    return _with_handle(flight, revive_queue=queue)


def _time(rng: random.Random, flight: Flight) -> list[Command]:
    handle = flight.handle
    times: tuple[dict[str, object], ...] = (
        {"invisible_ms": 999},
        {"invisible_ms": 61_234},
        {"invisible_ms": 259_200_000 - 1},
        {"invisible_ms": 259_200_000_000},
        {"invisible_ms": 2**63 - 1},
        {"pop_time_ms": handle.pop_time_ms + 17},
        {"start_offset": -5},
    )
    return _with_handle(flight, **rng.choice(times))


def _broker(rng: random.Random, flight: Flight) -> list[Command]:
    return _with_handle(flight, broker_name=rng.choice(("broker-b", "", "BROKER-A")))


def _one_way(rng: random.Random, flight: Flight) -> list[Command]:
    del rng
    return [dataclasses.replace(plain_ack(flight), flag=2)]


def _body(rng: random.Random, flight: Flight) -> list[Command]:
    return [dataclasses.replace(plain_ack(flight), body=b"x" * rng.choice((1, 100, 300_000)))]


def _twice(rng: random.Random, flight: Flight) -> list[Command]:
    return [plain_ack(flight)] * rng.randrange(2, 4)


def _ack(rng: random.Random, flight: Flight) -> list[Command]:
    del rng
    return [plain_ack(flight)]


def _later(rng: random.Random, flight: Flight) -> list[Command]:
    times = {"invisibleTime": str(rng.choice((0, 1, 30_000))), "consumerGroup": flight.group}
    return [invisible_command(flight.handle, flight.topic, **times)]


def _odd_later(rng: random.Random, flight: Flight) -> list[Command]:
    (command,) = _later(rng, flight)
    ext = dict(command.ext or {})
    name, value = rng.choice(
        (
            ("invisibleTime", "-1"),
            ("invisibleTime", "259200000"),
            ("invisibleTime", "259200001"),
            ("invisibleTime", "9223372036854775807"),
            ("invisibleTime", "x"),
            ("invisibleTime", ""),
            ("suspend", "true"),
            ("suspend", "false"),
            ("suspend", "maybe"),
            ("liteTopic", "light"),
            ("liteTopic", ""),
            ("offset", "-1"),
            ("offset", "999999"),
            ("queueId", "99"),
            ("topic", "NoSuchTopic"),
            ("topic", "WriteOnly"),
            ("topic", "%RETRY%cg_Plain"),
            ("consumerGroup", "nobody knows it"),
            ("extraInfo", flight.handle._replace(revive_queue=999).encode()),
            ("extraInfo", flight.handle._replace(revive_queue=8).encode()),
            ("extraInfo", flight.handle._replace(start_offset=-5).encode()),
            ("extraInfo", flight.handle._replace(pop_time_ms=1_600_000_000_000).encode()),
        )
    )
    ext[name] = value
    if rng.random() < 0.2:
        del ext[rng.choice(list(ext))]
    body = rng.choice((b"", b"", b"ignored"))
    return [dataclasses.replace(command, ext=ext, body=body, flag=rng.choice((0, 0, 0, 2)))]


def _batch(rng: random.Random, flight: Flight) -> list[Command]:
    acks = tuple(_checkpoint(rng, flight) for _ in range(rng.choice((1, 1, 2))))
    body = BatchAckBody(broker_name=flight.handle.broker_name, acks=acks).encode()
    return [Command(RequestCode.BATCH_ACK_MESSAGE, ext={}, body=body)]


def _odd_batch(rng: random.Random, flight: Flight) -> list[Command]:
    (command,) = _batch(rng, flight)
    what, by = rng.choice(
        (
            (b'"r":"0"', b'"r":"1"'),
            (b'"r":"0"', b'"r":"2"'),
            (b'"r":"0",', b""),
            (b'"t":', b'"topic":'),
            (b'"rq":', b'"rq":9'),
            (b'"rq":', b'"rq":-'),
            (b'"q":', b'"q":7'),
            (b'"so":', b'"so":-'),
            (b'"so":', b'"so":0'),
            (b'"it":', b'"it":99999'),
            (b'"pt":1', b'"pt":2'),
            (b'"b":"', b'"b":"*'),
            (b'"b":"', b'"b":"AAAA'),
            (b'"c":"', b'"c":"nobody '),
            (b'"acks":', b'"none":'),
            (b"broker-a", b"broker-b"),
            (b"}]", b"}"),
        )
    )
    assert command.body is not None
    body = command.body.replace(what, by, 1)
    return [dataclasses.replace(command, body=body, flag=rng.choice((0, 0, 0, 2)))]


def _checkpoint(rng: random.Random, flight: Flight) -> BatchAck:
    handle = flight.handle
    # Now and then some of them are behind the end of the queue.
    among = range(handle.start_offset, handle.start_offset + rng.choice((3, 3, 9)))
    offsets = sorted(rng.sample(among, rng.randrange(1, 4)))
    return BatchAck(
        group=flight.group,
        topic=flight.topic,
        retry_flag="0",
        start_offset=handle.start_offset,
        queue_id=handle.queue_id,
        revive_queue=handle.revive_queue,
        pop_time_ms=handle.pop_time_ms,
        invisible_ms=handle.invisible_ms,
        offsets=tuple(offsets),
    )


_ODD: tuple[Callable[[random.Random, Flight], list[Command]], ...] = (
    *(_field, _field, _field, _missing, _place, _time, _time, _broker),
    *(_one_way, _body, _twice, _later, _batch, _batch, _odd_batch, _odd_later, _odd_later),
)
_PLAIN: tuple[Callable[[random.Random, Flight], list[Command]], ...] = (
    *((_ack,) * 10),
    *(_later, _batch),
)
