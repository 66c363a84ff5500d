"""Brokers that keep users, and a proxy before them that judges its clients by these."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from typing import TYPE_CHECKING, Any

from auth_harness import INNER, ROOT, SWITCHES, acl_command, user_command
from grpc_calls import TOPICS, Calls
from roquet.base.clock import SystemClock
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.proxy.app import Proxy, build_cluster
from roquet.proxy.cluster.config import ClusterConfig
from roquet.proxy.rules.limits import ProxyLimits
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from pathlib import Path

    from roquet.acl.credentials import Credentials
    from roquet.broker.app import Broker
    from roquet.testing.cluster import Cluster


@dataclasses.dataclass
class Guarded:
    """A proxy, and the brokers behind it."""

    built: Proxy
    behind: Cluster

    def client(self, who: Credentials | None = None, name: str = "client-1") -> Calls:
        """Return a client that signs as a user."""
        calls = Calls(self.built.front, self.behind.broker, self.built.port, client_id=name)
        if who is not None:
            calls.access_key, calls.secret = who.access_key, who.secret_key
        return calls

    async def said(self, command: Command, broker: Broker) -> None:
        """Tell one broker something, in the name of an administrator."""
        answer = await self.behind.call(ROOT.sign(command), broker.identity.address)
        assert answer.code == 0, answer.remark

    async def tell(self, command: Command) -> None:
        """Tell all brokers something, as `mqadmin -c` does."""
        for broker in self.behind.brokers:
            await self.said(dataclasses.replace(command), broker)

    async def make(self, who: Credentials) -> None:
        """Make a user at each broker."""
        body = {"password": who.secret_key, "userType": "Normal"}
        await self.tell(user_command(3001, who.access_key, body))

    async def allow(self, who: Credentials, *entries: Mapping[str, Any]) -> None:
        """Give a user entries of a policy."""
        await self.tell(acl_command(3006, who.access_key, entries))


async def make_topic(it: Guarded, name: str, kind: str) -> None:
    """Make a topic with one queue on each broker; the name server knows it."""
    fields = {"topic": name, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    fields |= {"attributes": f"+message.type={kind}", "defaultTopic": "TBW102"}
    await it.tell(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))


@contextlib.asynccontextmanager
async def guarded_cluster(
    folder: Path,
    names: Sequence[str] = ("b",),
    *,
    rules: ProxyLimits | None = None,
    account: Credentials = INNER,
    changes: Mapping[str, str] | None = None,
) -> AsyncGenerator[Guarded]:
    """Run brokers and the proxy for the length of a block; `changes` are the brokers' settings."""
    async with cluster(folder, *names, **{**SWITCHES, **(changes or {})}) as behind:
        cluster_config = ClusterConfig(name_servers=behind.name_servers)
        built = build_cluster(
            cluster_config,
            "127.0.0.1",
            rules or ProxyLimits(port=0),
            SystemClock(),
            random.Random(7),
            account=account,
        )
        it = Guarded(built, behind)
        for name, kind in TOPICS.items() - {("Mixed", "MIXED")}:
            await make_topic(it, name, kind)
        async with built.app:
            yield it
