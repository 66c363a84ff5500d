"""Settings of the remoting port; names and defaults are Java's (rmq-proxy.json) where it has them.

Limits that nobody has to tune are constants below.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.config import setting
from roquet.base.limits import FRAME_SIZE_MAX, KIB
from roquet.protocol.codes import RequestCode
from roquet.protocol.hosts import networks_fault
from roquet.service.lanes import LaneConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RemotingLimits:
    """What the remoting port allows, and until when. Times are milliseconds, sizes bytes."""

    port: int = setting(
        "remotingListenPort",
        0,
        "Port of remoting clients; 0: none. RocketMQ's is 8080.",
        low=0,
        high=65535,
    )
    access_address: str = setting(
        "remotingAccessAddr",
        "",
        "Address that routes name as every broker's, without port; this machine's if empty.",
    )
    check_type: bool = setting(
        "enableTopicMessageTypeCheck", True, "Whether topics take their own type alone."
    )
    balancers: str = setting(
        "proxyProtocolPeers",
        "",
        "Addresses and networks of balancers that speak the PROXY protocol of HAProxy.",
        check=networks_fault,
    )
    connections_max: int = setting("remotingConnectionsMax", 20_000, "Connections.", low=1)
    address_connections_max: int = setting(
        "remotingConnectionsOfAddressMax", 10_000, "Those of one address.", low=1
    )
    broker_connections_max: int = setting(
        "remotingBrokerConnectionsMax",
        20_000,
        "Connections to brokers: one for each client and broker.",
        low=1,
    )
    send_queue: int = setting(
        "remotingSendThreadPoolQueueCapacity", 10_000, "Sends that wait.", low=0
    )
    pull_queue: int = setting(
        "remotingPullThreadPoolQueueCapacity", 50_000, "Pulls and pops at a time.", low=1
    )
    update_queue: int = setting(
        "remotingUpdateOffsetThreadPoolQueueCapacity", 10_000, "Commits that wait.", low=0
    )
    heartbeat_queue: int = setting(
        "remotingHeartbeatThreadPoolQueueCapacity", 50_000, "Heartbeats that wait.", low=0
    )
    route_queue: int = setting(
        "remotingTopicRouteThreadPoolQueueCapacity", 50_000, "Route queries that wait.", low=0
    )
    default_queue: int = setting(
        "remotingDefaultThreadPoolQueueCapacity", 50_000, "Other requests that wait.", low=0
    )
    send_age_ms: int = setting(
        "remotingWaitTimeMillsInSendQueue", 3_000, "A send waits so long.", unit="ms", low=0
    )
    pull_age_ms: int = setting(
        "remotingWaitTimeMillsInPullQueue", 5_000, "A pull waits so long.", unit="ms", low=0
    )
    update_age_ms: int = setting(
        "remotingWaitTimeMillsInUpdateOffsetQueue", 3_000, "A commit.", unit="ms", low=0
    )
    heartbeat_age_ms: int = setting(
        "remotingWaitTimeMillsInHeartbeatQueue", 31_000, "A heartbeat.", unit="ms", low=0
    )
    route_age_ms: int = setting(
        "remotingWaitTimeMillsInTopicRouteQueue", 3_000, "A route query.", unit="ms", low=0
    )
    default_age_ms: int = setting(
        "remotingWaitTimeMillsInDefaultQueue", 3_000, "Any other.", unit="ms", low=0
    )

    def lanes(self) -> Iterator[LaneConfig]:
        """Return the lanes; the number at a time is of requests that a broker has to answer."""
        yield LaneConfig(SEND, SENDS_MAX, self.send_queue, self.send_age_ms)
        yield LaneConfig(PULL, self.pull_queue, PULLS_WAITING_MAX, self.pull_age_ms)
        yield LaneConfig(UPDATE, 2_000, self.update_queue, self.update_age_ms)
        yield LaneConfig(HEARTBEAT, 256, self.heartbeat_queue, self.heartbeat_age_ms)
        yield LaneConfig(ROUTE, 256, self.route_queue, self.route_age_ms)
        yield LaneConfig(DEFAULT, 2_000, self.default_queue, self.default_age_ms)


SEND, PULL, UPDATE, HEARTBEAT, ROUTE, DEFAULT = (
    f"proxy {name}" for name in ("send", "pull", "update", "heartbeat", "route", "default")
)
SENDS_MAX = 2_000
"""Sends at a time of the handlers, and as many that pass by compiled code."""
PULLS_WAITING_MAX = 1_000
REQUEST_S = 3.0
"""For a broker's answer to any request that it does not hold."""
CONNECT_S = 2.5
"""For a connection to a broker, so that a client hears within 3 s of one that is away."""
RETRY_S = 1.0
"""A client's connection to a broker that could not be opened is not tried again for so long."""
RECALL_S = 2.0
HOLD_SPARE_S = 10.0
"""For the answer to a request that a broker holds, beyond the time that it is held."""
HOLD_MAX_MS = 300_000
"""Longest time for which a broker is expected to hold a request."""
CLIENT_BROKERS_MAX = 256
"""Brokers that a client may have connections to, and as many that a heartbeat goes to."""
HEARTBEAT_TOPICS_MAX = 256
"""Topics of a heartbeat whose brokers are looked up; beyond them the client's own routes count."""
HEARTBEAT_AGAIN_S = 5.0
"""The same heartbeat of a client is passed on once in so long."""
HEARTBEATS_BYTES_MAX = 256 * MIB
"""Bytes of the last heartbeats of all clients, fields and all."""
SMALL_HEARTBEAT_BYTES = 8 * KIB
"""The second half of these bytes is for heartbeats of this size: few large ones leave room."""
ROUTE_FIELDS_MAX = 8 * KIB
"""Bytes of the fields of a question for a route, which are remembered if it is signed."""
BACK_CALLS_MAX = 16
"""Requests of brokers that a client may have unanswered."""
BACK_S = 3.0
"""For a client's answer to a broker's request."""
FRESH_MS = 20_000
"""What name servers and brokers said is asked again after it."""
STALE_MS = 300_000
"""Older answers are used with a line in the log, and only while no name server answers."""
UNKNOWN_MS = 3_000
"""For how long a broker or topic that is not there, or of which nothing was heard, is not asked
for again."""
REFRESH_S = 0.5
"""For a newer answer, where an older one is known."""
REMEMBERED_MAX = 10_000
"""Brokers, routes and types of topics that are remembered, each."""

_SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
_BODIES = {
    **dict.fromkeys(_SENDS, FRAME_SIZE_MAX),
    RequestCode.HEART_BEAT: MIB,
    RequestCode.LOCK_BATCH_MQ: MIB,
    RequestCode.UNLOCK_BATCH_MQ: MIB,
    RequestCode.CHECK_CLIENT_CONFIG: MIB,
}


def body_max(code: int) -> int:
    """Return how many bytes the body of a request may have."""
    return _BODIES.get(RequestCode(code), 4 * KIB) if code in _KNOWN else 4 * KIB


_KNOWN = frozenset(map(int, RequestCode))
