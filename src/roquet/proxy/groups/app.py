"""Members of groups put together: a client of the cluster, its notices, and what ports note."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.config import own_ip
from roquet.client import connect
from roquet.proxy.groups.own import OwnMembers
from roquet.proxy.groups.syncer import MemberSync
from roquet.service.lifecycle import App, Part

if TYPE_CHECKING:
    import random

    from roquet.acl.credentials import Credentials
    from roquet.base.clock import Clock
    from roquet.proxy.cluster.config import ClusterConfig


def build_members(
    config: ClusterConfig,
    clock: Clock,
    rng: random.Random,
    *,
    grpc_port: int,
    remoting_port: int,
    account: Credentials | None = None,
) -> tuple[App, OwnMembers]:
    """Wire what tells other proxies of members; enter the app around the ports.

    `account` signs notices. Raises UsageError for name servers that are none.
    """
    host = config.serve_host or own_ip()
    # Two proxies of one host may have any free port, so that ports alone do not tell them apart.
    proxy_id = f"{host}%{remoting_port}%{grpc_port}%{rng.getrandbits(40):010x}"
    mq = connect(config.name_servers, credentials=account)
    sync = MemberSync(mq, config.sync_topic, proxy_id, clock)
    own = OwnMembers(sync.members, clock, host, grpc_port, remoting_port)
    return App([Part("members of groups", sync)], clock), own
