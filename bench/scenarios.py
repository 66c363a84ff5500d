"""What is measured: loads, each with the figure that is expected of us against Java's."""

from __future__ import annotations

import dataclasses
import random

from bench.access import Access


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """One load on one broker. `cpu_at_most` and `rate_at_least` are ratios to Java's figure."""

    name: str
    mode: str
    options: dict[str, int | str]
    cpu_at_most: float | None = None
    rate_at_least: float | None = None
    flush: str = "async"
    send_rate: int = 0
    """Messages a second that a second load generator sends meanwhile (tailing, mixed)."""
    is_shape: bool = False
    """One of the frame shapes that the spread is taken over."""
    topic: str = ""
    """End of the topic's name, where it is not the one that all share."""
    half_of: str = ""
    """Open loop at half of the rate that Java reached in this scenario, from the intended time."""


def send(name: str, cpu_at_most: float | None, **options: int | str) -> Scenario:
    """Return a send load with 1 KiB bodies over four queues."""
    return Scenario(name, "send", {"size": 1024, **options}, cpu_at_most=cpu_at_most)


ASYNC = [
    send("send 1x1", 1 / 8, conns=1, depth=1),
    send("send 16x1", 1 / 4, conns=16, depth=1),
    send("send 4x32", 1 / 8, conns=4, depth=32),
    send("send 4x32 window", 1 / 8, conns=4, depth=32, window=1),
    send("send 4x32 64 topics", 1 / 8, conns=4, depth=32, topics=64),
    send("send 4x32 binary headers", 1 / 8, conns=4, depth=32, header="binary"),
    send(
        "send 4x32 6 properties, keys, random",
        1 / 8,
        conns=4,
        depth=32,
        properties=6,
        keys=1,
        random=1,
    ),
    Scenario("open loop 16", "send", {"size": 1024, "conns": 16}, half_of="send 16x1"),
    Scenario("open loop 4", "send", {"size": 1024, "conns": 4}, half_of="send 4x32"),
    Scenario("pull 1 consumer, 32 a pull", "pull", {"conns": 1, "batch": 32}, cpu_at_most=1 / 4),
    Scenario("pull 8 consumers, 32 a pull", "pull", {"conns": 8, "batch": 32}, cpu_at_most=1 / 4),
    Scenario("tail, 1 group, 5,000/s", "tail", {"groups": 1}, cpu_at_most=1 / 4, send_rate=5_000),
    Scenario(
        "tail, 10 groups, 2,000/s", "tail", {"groups": 10}, cpu_at_most=1 / 4, send_rate=2_000
    ),
    Scenario(
        "mixed: pull beside 5,000/s",
        "pull",
        {"conns": 2, "batch": 32},
        cpu_at_most=1 / 4,
        send_rate=5_000,
    ),
]

SYNC = [
    Scenario("sync send 1x1", "send", {"conns": 1, "depth": 1}, rate_at_least=5, flush="sync"),
    Scenario("sync send 16x1", "send", {"conns": 16, "depth": 1}, rate_at_least=3, flush="sync"),
    Scenario("sync send 4x32", "send", {"conns": 4, "depth": 32}, rate_at_least=5, flush="sync"),
]


FILLED = "Filled"
"""End of the name of the topic that filters read: tags Tag0 to Tag9 in turn."""

ECHOED = "Echoed"
"""End of the name of the topic that is sent to and popped from at once."""

SERVICES = [
    Scenario(
        "tag filter, 1 of 10, 32 a pull",
        "pull",
        {"conns": 1, "batch": 32, "filter": "tag"},
        cpu_at_most=1 / 5,
        topic=FILLED,
    ),
    Scenario(
        "SQL92 filter, 1 of 10, 32 a pull",
        "pull",
        {"conns": 1, "batch": 32, "filter": "sql"},
        cpu_at_most=1 / 5,
        topic=FILLED,
    ),
    Scenario("transactions 4x32", "transactions", {"size": 1024, "conns": 4, "depth": 32}),
    Scenario("delayed by 1 s, 4x32", "send", {"size": 1024, "conns": 4, "depth": 32, "delay": 1}),
]
"""What is not plain. CPU of delayed messages counts until all of them are delivered."""

SERVICES_CONFIG = dict.fromkeys(("roquet", "loop", "java"), ("enablePropertyFilter=true",))

POP = [
    Scenario(
        f"pop 32, single acks, {conns} consumer{'s' * (conns > 1)}",
        "pop",
        {"conns": conns, "batch": 32},
        cpu_at_most=1 / 4,
        rate_at_least=3,
        topic=FILLED,
    )
    for conns in (1, 8)
]
"""Every message is popped and acknowledged by a request of its own."""
POP.append(
    Scenario(
        "pop 1 + ack + send 16x1",
        "pop",
        {"conns": 16, "echo": 1},
        cpu_at_most=1 / 3,
        topic=ECHOED,
    )
)
"""Each connection sends a message, pops one for a group of all, acknowledges it, in turn."""

POP_CONFIG = dict.fromkeys(("roquet", "loop", "java"), ("timerWheelEnable=true",))

POP_BUFFER = [
    dataclasses.replace(each, name=f"{each.name}, merge buffer", cpu_at_most=1 / 3) for each in POP
]

POP_BUFFER_CONFIG = dict.fromkeys(
    ("roquet", "loop", "java"), ("timerWheelEnable=true", "enablePopBufferMerge=true")
)

SLOW = [
    dataclasses.replace(each, name=f"processors only: {each.name}", cpu_at_most=1.0)
    for each in ASYNC
    if each.name in {"send 16x1", "send 4x32", "pull 8 consumers, 32 a pull"}
]
"""Our broker without its fast path."""

SLOW_CONFIG = dict.fromkeys(("roquet", "loop"), ("fastPathEnable=false",))


PEERS = [
    Scenario("peers: send 16x1", "send", {"size": 1024, "conns": 16, "depth": 1}),
    Scenario("peers: send 4x32", "send", {"size": 1024, "conns": 4, "depth": 32}),
    Scenario(
        "peers: send 4x32 in batches",
        "send",
        {"size": 1024, "conns": 4, "depth": 32, "batched": 1},
    ),
    Scenario("peers: pull 1 consumer, 32 a pull", "pull", {"conns": 1, "batch": 32}),
]
"""What brokers of other protocols are measured by as well. A message is a request of its own; in
batches one request has all that is in flight, as Kafka's producers do it (NATS has no such request
and gets the same as before). Nothing waits for the disk, and nothing is replicated."""


ACCESS = Access("bench-account", "secret-of-bench")

SECURE = [
    dataclasses.replace(each, name=f"accounts, TLS: {each.name}", cpu_at_most=1 / 2)
    for each in ASYNC
    if each.name in {"send 16x1", "send 4x32", "pull 8 consumers, 32 a pull"}
]
"""Every request is signed, and every connection of the load is over TLS."""

SECURE_POP = [
    dataclasses.replace(each, name=f"accounts, TLS: {each.name}", cpu_at_most=1 / 2) for each in POP
]


SPREAD_AT_MOST = 1.3
"""How far CPU per message may differ between frame shapes."""


REFERENCE = send("reference", None, conns=4, depth=32)
"""What runs behind each run of a frame shape, so that the two can be compared."""


def frame_shapes(seed: int, count: int = 10) -> list[Scenario]:
    """Draw frame shapes."""
    rng = random.Random(seed)
    shapes: list[Scenario] = []
    for index in range(count):
        options: dict[str, int | str] = {
            "conns": 4,
            "depth": 32,
            "size": 1024,
            "header": rng.choice(["json", "binary"]),
            "properties": rng.randint(3, 6),
            "keys": rng.randint(0, 1),
            "random": rng.randint(0, 1),
            "topics": rng.choice([1, 4, 64]),
            "seed": rng.randint(1, 10_000),
        }
        shapes.append(Scenario(f"shape {index}", "send", options, is_shape=True))
    return shapes
