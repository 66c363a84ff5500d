"""What a broker may say of itself: a registration is checked whole before any table changes.

Java takes everything; a broker that lies, or a stranger, could send clients anywhere or make
them allocate without bound (bad input B16: answered 29, the routes of others unchanged).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.auth.requests import BODY_LIMITS as USER_LIMITS
from roquet.base.errors import Refused
from roquet.base.limits import FRAME_SIZE_MAX, KIB
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.fastjson import is_object
from roquet.protocol.hosts import split_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.model.topic import TopicConfig
    from roquet.namesrv.table import Registration

NAME_MAX = 255
"""Characters of a name of any kind."""
TOPICS_MAX = 65_536
"""Topics of one registration."""
QUEUES_MAX = 65_536
"""Queues of one topic on one broker: clients make an object for each."""
FILTER_SERVERS_MAX = 1_024
PERM_MAX = 15
NO_BODY = 4 * KIB
BODY_LIMITS = {
    int(RequestCode.REGISTER_BROKER): (FRAME_SIZE_MAX, "topics of a broker; read beside the loop"),
    int(RequestCode.UPDATE_NAMESRV_CONFIG): (256 * KIB, "settings: the handler takes fewer"),
    int(RequestCode.REGISTER_TOPIC_IN_NAMESRV): (64 * KIB, "the route of one topic"),
    **{int(code): limit for code, limit in USER_LIMITS.items()},
}
"""Bytes that the body of a request may have, and why; others have next to none."""
EXPIRY_MAX_MS = 24 * 3600 * 1000


def body_max(code: int) -> int:
    """Return how many bytes the body of a request may have."""
    return BODY_LIMITS.get(code, (NO_BODY, ""))[0]


def invalid(what: str) -> Refused:
    """Make the refusal that says what is wrong with a request's value."""
    return Refused(ResponseCode.INVALID_PARAMETER, what)


def check_name(kind: str, name: str) -> None:
    """Raise Refused unless the name is short text without control characters or blanks."""
    if not 0 < len(name) <= NAME_MAX or not name.isprintable() or " " in name:
        raise invalid(f"{kind} {name[:40]!a} is not a name of 1..{NAME_MAX} visible characters")


def check_text(kind: str, text: str, limit: int = NAME_MAX) -> None:
    """Raise Refused unless the text is short and on one line; it may be empty."""
    if len(text) > limit or (text and not text.isprintable()):
        raise invalid(f"{kind} {text[:40]!a} is not one line of at most {limit} characters")


def check_address(kind: str, address: str, port_min: int) -> None:
    """Raise Refused unless clients could connect to `host:port`."""
    check_name(kind, address)
    try:
        port = split_address(address)[1]
    except ValueError as error:
        raise invalid(f"{kind}: {error}") from error
    if port < port_min:
        raise invalid(f"{kind} {address}: port {port} is below {port_min}")


def check_registration(said: Registration, port_min: int) -> None:
    """Raise Refused unless every part of a registration is sound."""
    check_name("clusterName", said.cluster)
    check_name("brokerName", said.name)
    check_address("brokerAddr", said.address, port_min)
    check_text("haServerAddr", said.ha_address)
    check_text("__ZONE_NAME", said.zone or "")
    if said.broker_id < 0:
        raise invalid(f"brokerId {said.broker_id} is negative")
    if said.timeout_ms is not None and not 0 < said.timeout_ms <= EXPIRY_MAX_MS:
        raise invalid(f"heartbeatTimeoutMillis {said.timeout_ms} is not in 1..{EXPIRY_MAX_MS}")
    _check_filters(said.filter_servers)
    if len(said.topics) > TOPICS_MAX:
        raise invalid(f"{len(said.topics)} topics are more than {TOPICS_MAX}")
    if len(said.mappings) > TOPICS_MAX:
        raise invalid(f"{len(said.mappings)} mappings are more than {TOPICS_MAX}")
    for topic in said.topics.values():
        check_topic(topic)
    for name, mapping in said.mappings.items():
        check_name("topic", name)
        if not is_object(mapping) or mapping.get("bname") != said.name:
            raise invalid(f"the mapping of {name} is not of broker {said.name}")


def _check_filters(servers: Sequence[str]) -> None:
    if len(servers) > FILTER_SERVERS_MAX:
        raise invalid(f"{len(servers)} filter servers are more than {FILTER_SERVERS_MAX}")
    for server in servers:
        check_text("filterServerList", server)


def check_topic(topic: TopicConfig) -> None:
    """Raise Refused unless clients can work with the topic's numbers."""
    check_name("topic", topic.name)
    check_queues(topic.name, topic.read_queues, topic.write_queues, topic.perm)


def check_queues(topic: str, read: int, write: int, perm: int) -> None:
    """Raise Refused unless queue numbers and permission are in their range."""
    if not (0 <= read <= QUEUES_MAX and 0 <= write <= QUEUES_MAX):
        raise invalid(f"topic {topic}: {read} and {write} queues are not both in 0..{QUEUES_MAX}")
    if not 0 <= perm <= PERM_MAX:
        raise invalid(f"topic {topic}: perm {perm} is not in 0..{PERM_MAX}")
