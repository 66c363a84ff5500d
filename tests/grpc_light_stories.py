"""What the official Python client does with light topics before a proxy: Java's or ours."""

from __future__ import annotations

import base64
import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from interop_world import until
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpc_harness import Message, Peer, ProxyWorld

PARENT = "Chats"


def light_group(world: ProxyWorld, name: str, **more: str) -> str:
    """Make a group that is bound to the parent."""
    given = {"lite.bind.topic": PARENT, **more}
    return world.group(name, attributes={f"+{key}": value for key, value in given.items()})


def sent(peer: Peer, light: str, *bodies: bytes) -> None:
    """Send messages to a light topic, all of which are stored."""
    answers = peer.send(PARENT, [{"body": body, "light": light} for body in bodies])
    assert not [answer for answer in answers if "error" in answer], answers


def came(peer: Peer, name: str, count: int, timeout_s: int = 90) -> list[tuple[str, bytes, int]]:
    """Return light topic, body and attempt of what a consumer got, when there is so much."""
    asked = {"name": name, "count": count, "timeout_s": timeout_s}
    found: Sequence[Message] = peer.ask("light_came", timeout_s + 20.0, **asked)
    return [(one["light"], plain(one), one["attempt"]) for one in found]


def plain(message: Message) -> bytes:
    """Return the body of a message."""
    return base64.b64decode(message["body"])


def committed(world: ProxyWorld, group: str, light: str) -> int:
    """Return where a group is in a light topic."""
    answer = info(world, RequestCode.GET_LITE_GROUP_INFO, group=group, liteTopic=light)
    offsets = answer.get("liteTopicOffsetWrapper")
    return -1 if offsets is None else int(offsets["consumerOffset"])


def info(world: ProxyWorld, code: RequestCode, **fields: str) -> dict[str, Any]:
    """Ask the broker about light topics."""
    answer = world.ask(Command(code, fields))
    assert answer.code == 0, answer.remark
    found: dict[str, Any] = json.loads(answer.body)
    return found


def consumer_gets_what_is_sent_to_its_light_topics(world: ProxyWorld, peer: Peer) -> None:
    group = light_group(world, "lights")
    peer.ask("light_open", name="one", topic=PARENT, group=group, lights=["a", "b"])
    try:
        # The proxy tells the broker of subscriptions behind its answers.
        until("the subscriptions", lambda: all(subscribers(world, name) for name in "ab"))
        sent(peer, "a", b"a0", b"a1")
        sent(peer, "elsewhere", b"x")
        sent(peer, "b", b"b0")
        found = came(peer, "one", 3)
        assert sorted(found) == [("a", b"a0", 1), ("a", b"a1", 1), ("b", b"b0", 1)]
        # They were acknowledged through the proxy.
        until("the acknowledgements", lambda: committed(world, group, "a") == 2)
        until("the acknowledgement", lambda: committed(world, group, "b") == 1)
        peer.ask("light_unsubscribe", name="one", light="b")
        # The proxy tells the broker of it behind its answer.
        until("the end of the subscription", lambda: not subscribers(world, "b"))
        # Java's broker may have noted "b" for the client once more, and gives what is there then.
        sent(peer, "a", b"a2")
        assert came(peer, "one", 4)[3:] == [("a", b"a2", 1)]
        sent(peer, "b", b"b1")
        sent(peer, "a", b"a3")
        assert came(peer, "one", 5)[4:] == [("a", b"a3", 1)]
        subscribed = info(world, RequestCode.GET_LITE_TOPIC_INFO, parentTopic=PARENT, liteTopic="a")
        assert [one["group"] for one in subscribed["subscriber"]] == [group]
        assert subscribed["shardingToBroker"] is True
    finally:
        peer.ask("light_close", name="one")
    # Whoever leaves is forgotten by the broker.
    until("the end", lambda: not subscribers(world, "a"))


def subscribers(world: ProxyWorld, light: str) -> list[dict[str, str]]:
    """Return who subscribes to a light topic."""
    asked = {"parentTopic": PARENT, "liteTopic": light}
    found: list[dict[str, str]] = info(world, RequestCode.GET_LITE_TOPIC_INFO, **asked)[
        "subscriber"
    ]
    return found


def message_that_failed_comes_again(
    world: ProxyWorld, peer: Peer, *, with_those_behind: bool = False
) -> None:
    """Fail a message once; Java's broker gives those behind it again, acknowledged or not.

    Those are the messages that it has handed out by then: on a busy machine maybe none.
    """
    group = light_group(world, "lights-again")
    failing = base64.b64encode(b"f1").decode()
    asked: dict[str, Any] = {"topic": PARENT, "group": group, "fail_once": failing}
    peer.ask("light_open", name="again", lights=["f"], **asked)
    try:
        sent(peer, "f", b"f0", b"f1", b"f2")
        wanted = Counter([b"f0", b"f1", b"f1", b"f2"])
        until("each of them", lambda: Counter(bodies(peer, "again")) >= wanted, 90)
        until("the acknowledgements", lambda: committed(world, group, "f") == 3)
        found = came(peer, "again", 4)
        more = Counter(body for _, body, _ in found) - wanted
        assert more in ([{}, {b"f2": 1}] if with_those_behind else [{}])
        assert [attempt for _, body, attempt in found if body == b"f1"] == [1, 2]
    finally:
        peer.ask("light_close", name="again")


def later_consumer_of_exclusive_group_takes_over(world: ProxyWorld, peer: Peer) -> None:
    group = light_group(world, "lights-alone", **{"lite.sub.model": "Exclusive"})
    peer.ask("light_open", name="first", topic=PARENT, group=group, lights=["e"])
    try:
        sent(peer, "e", b"e0")
        assert came(peer, "first", 1) == [("e", b"e0", 1)]
        until("the acknowledgement", lambda: committed(world, group, "e") == 1)
        peer.ask("light_open", name="second", topic=PARENT, group=group, lights=["e"])
        try:
            sent(peer, "e", b"e1", b"e2")
            assert came(peer, "second", 2) == [("e", b"e1", 1), ("e", b"e2", 1)]
            assert len(came(peer, "first", 1)) == 1
        finally:
            peer.ask("light_close", name="second")
    finally:
        peer.ask("light_close", name="first")


def subscription_survives_a_kill_of_the_broker(world: ProxyWorld, peer: Peer) -> None:
    group = light_group(world, "lights-killed")
    peer.ask("light_open", name="killed", topic=PARENT, group=group, lights=["k"])
    try:
        sent(peer, "k", b"k0")
        assert came(peer, "killed", 1) == [("k", b"k0", 1)]
        world.broker.close("kill")
        world.broker.open("ours")
        # Clients say what they subscribe to every 30 seconds.
        sent_again = partial(try_send, peer, b"k1")
        until("the broker", sent_again, 60)
        # Offsets that were not saved yet are forgotten: the first message may come a second time.
        until("the message", lambda: b"k1" in bodies(peer, "killed"), 90)
        assert set(bodies(peer, "killed")) == {b"k0", b"k1"}
    finally:
        peer.ask("light_close", name="killed")


def bodies(peer: Peer, name: str) -> list[bytes]:
    """Return what a consumer got so far."""
    return [body for _, body, _ in came(peer, name, 0)]


def try_send(peer: Peer, body: bytes) -> bool:
    """Send, if somebody takes it."""
    (answer,) = peer.send(PARENT, [{"body": body, "light": "k"}])
    return "error" not in answer


def group_of_another_parent_is_refused_by_the_proxy(world: ProxyWorld, peer: Peer) -> None:
    world.topic("Other", "LITE")
    group = light_group(world, "lights-bound")
    # It asks the broker what the group is bound to, and gives no settings.
    with pytest.raises(AssertionError, match="failed to receive initial settings"):
        peer.ask("light_open", 90.0, name="wrong", topic="Other", group=group, lights=["a"])
