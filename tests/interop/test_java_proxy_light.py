"""Light topics by Java's proxy 5.5.0 before our broker, with the official Python client."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

import grpc_light_stories as stories
import roquet
from grpc_harness import SYNC_TOPIC, Accounts, Peer, ProxyWorld
from grpc_light_stories import PARENT, came, committed, light_group, sent
from interop_world import until
from light_harness import ON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def world(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyWorld]:
    built = ProxyWorld.start(jars, tmp_path_factory.mktemp("proxy-light"), settings=ON)
    built.topic(PARENT, "LITE")
    yield built
    built.stop()


@pytest.fixture
def peer(world: ProxyWorld) -> Peer:
    return world.peer("python")


def test_consumer_gets_what_is_sent_to_its_light_topics(world: ProxyWorld, peer: Peer) -> None:
    stories.consumer_gets_what_is_sent_to_its_light_topics(world, peer)


def test_message_that_failed_comes_again(world: ProxyWorld, peer: Peer) -> None:
    stories.message_that_failed_comes_again(world, peer)


def test_later_consumer_of_exclusive_group_takes_over(world: ProxyWorld, peer: Peer) -> None:
    stories.later_consumer_of_exclusive_group_takes_over(world, peer)


def test_subscription_survives_a_kill_of_the_broker(world: ProxyWorld, peer: Peer) -> None:
    stories.subscription_survives_a_kill_of_the_broker(world, peer)


def test_group_of_another_parent_is_refused_by_the_proxy(world: ProxyWorld, peer: Peer) -> None:
    stories.group_of_another_parent_is_refused_by_the_proxy(world, peer)


PROXY = roquet.Credentials("the-proxy", "secret-of-proxy")
ADMIN = roquet.Credentials("admin-one", "secret-of-admin")
ACCOUNTS = f"""\
accounts:
- accessKey: {PROXY.access_key}
  secretKey: {PROXY.secret_key}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - {SYNC_TOPIC}=PUB|SUB
  - {PARENT}=PUB|SUB
  groupPerms:
  - CID_{SYNC_TOPIC}=SUB
  - allowed=SUB
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
"""


@pytest.fixture(scope="module")
def signed(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyWorld]:
    accounts = Accounts(ACCOUNTS, PROXY, ADMIN)
    folder = tmp_path_factory.mktemp("light-signed")
    built = ProxyWorld.start(jars, folder, accounts=accounts, settings=ON)
    built.topic(PARENT, "LITE")
    yield built
    built.stop()


def test_account_of_the_proxy_needs_the_parent_and_the_group_alone(signed: ProxyWorld) -> None:
    peer = signed.peer("python")
    group = light_group(signed, "allowed")
    failing = base64.b64encode(b"1").decode()
    asked: dict[str, Any] = {"topic": PARENT, "group": group, "fail_once": failing}
    peer.ask("light_open", name="allowed", lights=["a"], **asked)
    try:
        sent(peer, "a", b"0", b"1")
        # Also what comes a second time.
        found = came(peer, "allowed", 3, 50)
        assert sorted(found) == [("a", b"0", 1), ("a", b"1", 1), ("a", b"1", 2)]
        until("the acknowledgements", lambda: committed(signed, group, "a") == 2)
    finally:
        peer.ask("light_close", name="allowed")
    # Another group of the same parent, and another parent, are not the account's.
    other = light_group(signed, "not-allowed")
    with pytest.raises(AssertionError, match="failed to receive initial settings"):
        peer.ask("light_open", 90.0, name="not", topic=PARENT, group=other, lights=["a"])
    signed.topic("Hidden", "LITE")
    (answer,) = peer.send("Hidden", [{"body": b"m", "light": "a"}])
    # The account is not told of what it may not use, not even of its type.
    assert "access type:MESSAGE_TYPE_UNSPECIFIED" in answer["error"], answer
