"""Every JSON body that Java 5.5.0 sent decodes, and what we write of it says the same."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.protocol import fastjson
from roquet.protocol.bodies import clients, locks, offsets, routes, stats, topics
from roquet.protocol.bodies.groups import GroupTableBody
from roquet.protocol.registration.body import RegisterBody

VECTORS = Path(__file__).parents[2] / "vectors"

Transcode = Callable[[bytes], bytes]

TRANSCODERS: dict[tuple[str, int], Transcode] = {
    ("request", 103): lambda body: RegisterBody.decode(body, 513, compressed=False).encode(),
    ("response", 105): lambda body: routes.encode_route(routes.decode_route(body), standard=True),
    ("response", 106): lambda body: routes.ClusterInfo.decode(body).encode(),
    ("request", 34): lambda body: clients.HeartbeatData.decode(body).encode(),
    ("request", 41): lambda body: locks.LockRequest.decode(body).encode(),
    ("request", 42): lambda body: locks.LockRequest.decode(body).encode(),
    ("request", 46): lambda body: clients.CheckClient.decode(body).encode(),
    ("response", 202): lambda body: stats.TopicStats.decode(body).encode(),
    ("response", 208): lambda body: stats.ConsumeStats.decode(body).encode(),
    ("response", 351): lambda body: topics.encode_topic(topics.decode_topic(body)),
    ("response", 38): lambda body: clients.encode_consumer_ids(clients.decode_consumer_ids(body)),
    ("response", 41): lambda body: locks.encode_locked(locks.decode_locked(body)),
}


def _bodies() -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = {}
    for name in ("namesrv_frames", "broker_frames"):
        asked: dict[tuple[object, ...], int] = {}
        with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt") as lines:
            for line in lines:
                frame = json.loads(line)
                raw = bytes.fromhex(frame["hex"])
                body = raw[8 + int.from_bytes(raw[5:8], "big") :]
                ask = (frame["conn"], frame["dir"] == "c2s", frame["opaque"])
                code = frame["code"]
                if frame["kind"] == "request":
                    asked[ask] = code
                else:
                    code = asked.get((ask[0], not ask[1], ask[2]), -1)
                if body[:1] == b"{":
                    found.setdefault((frame["kind"], code), []).append(body)
    return found


BODIES = _bodies()


def _canonical(value: object) -> object:
    """Sets have no order on the wire."""
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((_canonical(item) for item in value), key=repr)
    return value


def test_every_recorded_body_has_a_reader() -> None:
    assert set(BODIES) == set(TRANSCODERS)


@pytest.mark.parametrize("key", sorted(TRANSCODERS))
def test_recorded_bodies_survive(key: tuple[str, int]) -> None:
    for body in BODIES[key]:
        written = TRANSCODERS[key](body)
        assert _canonical(fastjson.read(written)) == _canonical(fastjson.read(body))


def test_routes_are_byte_equal() -> None:
    for body in BODIES["response", 105]:
        assert routes.encode_route(routes.decode_route(body), standard=True) == body


FILES = {
    "topics.json": lambda data: topics.TopicTableBody.decode(data).encode_file(),
    "subscriptionGroup.json": lambda data: GroupTableBody.decode(data).encode_file(),
    "consumerOffset.json": lambda data: offsets.ConsumerOffsetBody.decode(data).encode_file(),
    "delayOffset.json": lambda data: offsets.DelayOffsetBody.decode(data).encode_file(),
}


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("state", ["clean", "running"])
def test_config_files_survive(name: str, state: str) -> None:
    data = (VECTORS / "store" / state / "config" / name).read_bytes()
    written = FILES[name](data)
    assert _canonical(fastjson.read(written)) == _canonical(fastjson.read(data))
    # Java's maps have no order: the same lines, in another one.
    assert sorted(line.rstrip(b",") for line in written.split(b"\n")) == sorted(
        line.rstrip(b",") for line in data.split(b"\n")
    )
