"""A proxy that has no account before a broker that asks for one: nothing passes."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from grpc_calls import Calls, consumer, message
from roquet.base.clock import SystemClock
from roquet.proxy import messages as pb
from roquet.proxy.app import build_cluster
from roquet.proxy.cluster.config import ClusterConfig
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.limits import ProxyLimits
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path

ACCOUNTS = """\
accounts:
- accessKey: the-writer
  secretKey: secret-of-writer
  topicPerms: [Normal=PUB|SUB]
"""
KINDS = {
    "accounts": {"aclEnable": "true"},
    "users": {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "migrateAuthFromV1Enabled": "true",
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_broker_of_accounts_refuses_the_proxy_and_clients_get_unauthorized(
    tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text(ACCOUNTS)

    async def main() -> None:
        changes = {"rocketmqHome": str(tmp_path), "autoCreateTopicEnable": "true", **KINDS[kind]}
        async with cluster(tmp_path, **changes) as behind:
            broker = behind.broker
            # Its cluster's name is a topic with a route, which nobody has to make.
            topic = broker.identity.cluster
            config = ClusterConfig(name_servers=behind.name_servers)
            rng = random.Random(7)
            built = build_cluster(config, "127.0.0.1", ProxyLimits(port=0), SystemClock(), rng)
            async with built.app:
                calls = Calls(built.front, broker, built.port)
                calls.access_key, calls.secret = "the-writer", "secret-of-writer"
                route = pb.QueryRouteRequest()
                route.topic.name = topic
                answer = await calls.call("QueryRoute", route)
                assert answer.status.code == Code.UNAUTHORIZED, answer.status
                sent = await calls.send(message(topic))
                assert sent.status.code == Code.UNAUTHORIZED, sent.status
                assert not sent.entries
                ended = await calls.show(consumer("g", 3, topic))
                assert ended is not None

    asyncio.run(main())
