"""Which request codes the broker serves, and which it declines and why.

The table of what is served is the sum of the adapters' own rows; `roquet broker --explain` prints
it. A test checks that every code is in exactly one of the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roquet.protocol.codes import RequestCode
from roquet.remoting.router import Ports

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.remoting.router import Route


class Routed(Protocol):
    """An adapter of a family of requests."""

    def routes(self) -> list[Route]:
        """Return the rows for the codes it answers."""
        ...


def explain_routes(routes: Iterable[Route]) -> str:
    """Return which code goes to which handler, in which lane, on which port; then the declined."""
    lines = [f"{'code':>7} {'name':<44} {'lane':<16} {'ports':<10} handler"]
    rows = {code: route for route in routes for code in route.codes}
    for code in sorted(rows):
        route = rows[code]
        ports = "main, fast" if Ports.FAST in route.ports else "main"
        handler = getattr(route.handler, "__qualname__", type(route.handler).__name__)
        lines.append(f"{code:>7} {code.name:<44} {route.lane:<16} {ports:<10} {handler}")
    lines += ["", "answered 3 (REQUEST_CODE_NOT_SUPPORTED), as every code that is not listed:"]
    lines += [
        f"{code:>7} {code.name:<44} {DECLINED[code]}"
        for code in sorted(DECLINED)
        if code not in rows
    ]
    return "\n".join(lines)


def all_routes(adapters: Iterable[Routed]) -> list[Route]:
    """Return the rows of all adapters."""
    return [route for adapter in adapters for route in adapter.routes()]


_OTHER_SIDE = "sent by a broker to clients, never to a broker"
_NAME_SERVER = "served by name servers"
_CONTROLLER = "served by controllers"
_LEGACY = "not served by 5.x brokers either"
_OTHER_CODE = "reserved by RocketMQ; messages of light topics are acknowledged with 200051"
_COLD = "reads of old messages are not held back here, so there is nothing to set (5.x)"
_ROCKSDB = "nothing is kept in RocksDB here (5.x)"
_LATER = {
    "the timeline in RocksDB": (RequestCode.SWITCH_TIMER_ENGINE,),
    "static topics": (RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,),
    "controller mode": (
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    ),
    "several brokers in one process": (
        RequestCode.ADD_BROKER,
        RequestCode.REMOVE_BROKER,
    ),
    "access control": (
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
        RequestCode.GET_USERS,
    ),
}
"""Features that this release does not have yet."""

_ACCOUNTS = "served when aclEnable is true, as by 4.9; 5.x brokers do not know it"

_BY_REASON = {
    _ACCOUNTS: (
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    ),
    _OTHER_SIDE: (
        RequestCode.CHECK_TRANSACTION_STATE,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        RequestCode.NOTIFY_UNSUBSCRIBE_LITE,
    ),
    _NAME_SERVER: (
        RequestCode.PUT_KV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.BROKER_HEARTBEAT,
    ),
    _CONTROLLER: (
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RequestCode.CONTROLLER_GET_REPLICA_INFO,
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.CLEAN_BROKER_DATA,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        RequestCode.BROKER_CLOSE_CHANNEL_REQUEST,
        RequestCode.CHECK_NOT_ACTIVE_BROKER_REQUEST,
        RequestCode.GET_BROKER_LIVE_INFO_REQUEST,
        RequestCode.GET_SYNC_STATE_DATA_REQUEST,
        RequestCode.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
    ),
    _COLD: (
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
        RequestCode.SET_COMMITLOG_READ_MODE,
    ),
    _ROCKSDB: (
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
    ),
    _OTHER_CODE: (RequestCode.ACK_LITE_MESSAGE,),
    _LEGACY: (
        RequestCode.QUERY_BROKER_OFFSET,
        RequestCode.GET_TOPIC_CONFIG_LIST,
        RequestCode.GET_TOPIC_NAME_LIST,
        RequestCode.TRIGGER_DELETE_FILES,
        RequestCode.GET_CLIENT_CONFIG,
        RequestCode.SUSPEND_CONSUMER,
        RequestCode.RESUME_CONSUMER,
        RequestCode.RESET_CONSUMER_OFFSET_IN_CONSUMER,
        RequestCode.RESET_CONSUMER_OFFSET_IN_BROKER,
        RequestCode.ADJUST_CONSUMER_THREAD_POOL,
        RequestCode.WHO_CONSUME_THE_MESSAGE,
        RequestCode.REGISTER_FILTER_SERVER,
        RequestCode.REGISTER_MESSAGE_FILTER_CLASS,
    ),
}

DECLINED: dict[RequestCode, str] = {
    **{code: reason for reason, codes in _BY_REASON.items() for code in codes},
    **{code: f"comes with {what}" for what, codes in _LATER.items() for code in codes},
}
"""Codes that are answered with REQUEST_CODE_NOT_SUPPORTED (3), with the reason."""
