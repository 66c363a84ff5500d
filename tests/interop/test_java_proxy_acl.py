"""Java's proxy with an account of its own before our broker with ACL 1.0."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

import roquet
from grpc_harness import SYNC_TOPIC, Accounts, ProxyWorld
from interop_world import has_route, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
  - Allowed=PUB|SUB
  - AllowedHalves=PUB|SUB
  groupPerms:
  - CID_{SYNC_TOPIC}=SUB
  - allowed=SUB
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
"""


@pytest.fixture(scope="module")
def world(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyWorld]:
    accounts = Accounts(ACCOUNTS, PROXY, ADMIN)
    built = ProxyWorld.start(jars, tmp_path_factory.mktemp("signed"), accounts=accounts)
    yield built
    built.stop()


def test_proxy_serves_what_its_account_may_use(world: ProxyWorld) -> None:
    topic, group = world.topic("Allowed", "NORMAL"), world.group("allowed", retryMaxTimes=1)
    peer = world.peer("python")
    answers = peer.send(topic, [{"body": b"m%d" % number} for number in range(4)])
    ids = [answer["id"] for answer in answers]
    # Received, acknowledged, made visible again, and in the end a dead letter.
    came = peer.push(topic, group, 5, fail_always=b"m1", linger_s=1)
    assert sorted(one["id"] for one in came) == sorted([*ids, ids[1]])
    plan = world.broker.plan
    until("dead letters", partial(has_route, plan.namesrv, f"%DLQ%{group}", plan.name))
    halves = world.topic("AllowedHalves", "TRANSACTION")
    message = {"body": "bQ=="}
    half = peer.ask("transaction", topic=halves, message=message, end="none", check="commit")
    came = peer.push(halves, group, 1)
    assert [one["id"] for one in came] == [half["id"]]


def test_what_the_account_may_not_use_is_refused(world: ProxyWorld) -> None:
    topic, group = world.topic("Forbidden", "NORMAL"), world.group("forbidden")
    peer = world.peer("python")
    (answer,) = peer.send(topic, [{"body": b"m"}])
    # The proxy's account is not told of the topic, so that the route says of no type.
    assert "queue access type:MESSAGE_TYPE_UNSPECIFIED" in answer["error"], answer
    (sent,) = peer.send(world.topic("Allowed", "NORMAL"), [{"body": b"m"}])
    assert "error" not in sent, sent
    # Nor of the group: RocketMQ's proxy takes it for one that there is not, and gives it nothing.
    peer.ask("open", topic="Allowed", group=group)
    assert not any(peer.receive(group) for _ in range(20))
