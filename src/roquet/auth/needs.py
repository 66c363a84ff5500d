"""What each request needs of a user: which actions on which resources, or a super user.

The table follows RocketMQ 5.5.0. It is stricter where that checks nothing although data or tables
are at stake: a request that is not listed needs a super user. It is milder in one place: offsets
of a queue may be asked for with SUB as well as with GET, since consumers need them to begin.
Where a header does not say which topic it is about, the service asks `acl.rights` once it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from roquet.acl import needs as by_account
from roquet.acl.accounts import Perm
from roquet.auth.model import Action, Need, cluster, group, need, topic
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.codes import RequestCode
from roquet.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from roquet.protocol.command import Command

Needs = Callable[["Command"], "Sequence[Need] | None"]
"""Returns what a user needs for a request; None: only a super user may."""

BODY_MAX = 64 * 1024
"""Bytes of a body that is read for its resource; longer ones are for super users."""

_ACTIONS = {
    Perm.PUB: frozenset({Action.PUB}),
    Perm.SUB: frozenset({Action.SUB}),
    Perm.BOTH: frozenset({Action.PUB, Action.SUB}),
    Perm.SUB | Perm.GET: frozenset({Action.SUB, Action.GET}),
    Perm.BOTH | Perm.GET: frozenset({Action.PUB, Action.SUB, Action.GET}),
}

_Ext = dict[str, str]
_Reader = Callable[["Command", _Ext], "Sequence[Need] | None"]


def joined(command: Command) -> str | None:
    """Return the producer group whose member has to send a request; None for most requests."""
    if command.code != RequestCode.END_TRANSACTION:
        return None
    return (command.ext or {}).get("producerGroup", "")


def of_account(asked: by_account.Need) -> Need:
    """Return a need of services, which know no actions, as one of users."""
    resource = group(asked.name) if asked.is_group else topic(asked.name)
    return Need(resource, _ACTIONS[asked.perm])


def broker_needs(cluster_name: str) -> Needs:
    """Return what requests to a broker of a cluster need beside what its services ask for."""
    at_cluster = {
        action: (need(cluster(cluster_name), action),) for action in (Action.GET, Action.UPDATE)
    }

    def needs(command: Command) -> Sequence[Need] | None:
        code = command.code
        if code in _LOOKS:
            return ()
        if code in _CLUSTER_GET:
            return at_cluster[Action.GET]
        if code in _CLUSTER_UPDATE:
            return at_cluster[Action.UPDATE]
        reader = _BY_CODE.get(code)
        if reader is not None:
            return reader(command, command.ext or {})
        found = by_account.broker_needs(command) if code in by_account.OWN_RULES else None
        return None if found is None else [of_account(it) for it in found]

    return needs


def name_server_needs(command: Command) -> Sequence[Need] | None:
    """Return what a request to a name server needs."""
    code, ext = command.code, command.ext or {}
    if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        return _route(command, ext)
    if code in _NAME_SERVER_LOOKS:
        return ()
    name = ext.get("clusterName", "")
    if code in _NAME_SERVER_GET:
        return (need(cluster(name), Action.GET),)
    if code in _NAME_SERVER_UPDATE and name:
        return (need(cluster(name), Action.UPDATE),)
    return None


def _route(_: Command, ext: _Ext) -> list[Need]:
    name = ext.get("topic", "")
    if name.startswith(RETRY_PREFIX):
        return [need(group(name), Action.SUB, Action.GET)]
    return [need(topic(name), Action.PUB, Action.SUB, Action.GET)]


def _on(*actions: Action, topic_field: str = "", group_field: str = "") -> _Reader:
    """Return a reader of needs about the topic and the group that fields name.

    A retry topic is its group's. A field that is absent or blank stands for a resource without a
    name, which only entries about all names cover.
    """

    def read(_: Command, ext: _Ext) -> list[Need]:
        found = [
            need(made(ext.get(field, "")), *actions)
            for field, made in ((topic_field, topic), (group_field, group))
            if field
        ]
        return list(dict.fromkeys(found))

    return read


def _query(_: Command, ext: _Ext) -> list[Need]:
    return [need(topic(ext.get("topic", "")), Action.SUB, Action.GET)]


def _offsets_of_group(action: Action) -> _Reader:
    def read(_: Command, ext: _Ext) -> list[Need]:
        name, owner = ext.get("topic", ""), group(ext.get("consumerGroup", ""))
        # A retry topic is its group's, which need not be the group whose offsets are meant.
        of = group(name) if name.startswith(RETRY_PREFIX) else topic(name)
        found = [need(of, Action.SUB, action), need(owner, Action.SUB, action)]
        return list(dict.fromkeys(found))

    return read


def _end_transaction(_: Command, ext: _Ext) -> list[Need]:
    # The producer group is the guard's: `joined`.
    return [
        of_account(it) for it in by_account.end_of(ext) if it.perm != Perm.PUB or not it.is_group
    ]


def _put_group(command: Command, _: _Ext) -> list[Need] | None:
    if len(command.body) > BODY_MAX:
        return None
    try:
        name = fields.text(fastjson.read_object(command.body), "groupName")
    except ValueError:
        return None
    return [need(group(name), Action.CREATE, Action.UPDATE)]


def _stats(_: Command, ext: _Ext) -> list[Need] | None:
    topics = by_account.named_topics(ext)
    if topics is None:
        return None
    found = [need(group(ext.get("consumerGroup", "")), Action.GET)]
    # Without a topic it is about all that the group reads.
    return [*found, *(need(topic(name), Action.GET) for name in dict.fromkeys(topics))]


def _corrections(_: Command, ext: _Ext) -> list[Need] | None:
    groups = by_account.compared_groups(ext)
    if groups is None:
        return None
    found = [need(group(name), Action.GET) for name in groups]
    return [*found, need(topic(ext.get("topic", "")), Action.GET)]


_GET, _UPDATE, _SUB, _PUB = Action.GET, Action.UPDATE, Action.SUB, Action.PUB

_BY_CODE: dict[int, _Reader] = {
    RequestCode.SEND_REPLY_MESSAGE: _on(_PUB, topic_field="topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _on(_PUB, topic_field="b"),
    RequestCode.END_TRANSACTION: _end_transaction,
    RequestCode.QUERY_MESSAGE: _query,
    RequestCode.QUERY_CONSUME_QUEUE: _on(_SUB, _GET, topic_field="topic"),
    RequestCode.QUERY_CONSUMER_OFFSET: _offsets_of_group(_GET),
    RequestCode.UPDATE_CONSUMER_OFFSET: _offsets_of_group(_UPDATE),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _on(_SUB, _GET, topic_field="topic"),
    RequestCode.GET_MAX_OFFSET: _on(_SUB, _GET, topic_field="topic"),
    RequestCode.GET_MIN_OFFSET: _on(_SUB, _GET, topic_field="topic"),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _on(_SUB, _GET, topic_field="topic"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _on(_SUB, _GET, group_field="consumerGroup"),
    RequestCode.UPDATE_AND_CREATE_TOPIC: _on(Action.CREATE, topic_field="topic"),
    RequestCode.DELETE_TOPIC_IN_BROKER: _on(Action.DELETE, topic_field="topic"),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _put_group,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _on(Action.DELETE, group_field="groupName"),
    RequestCode.GET_TOPIC_STATS_INFO: _on(_GET, topic_field="topic"),
    RequestCode.GET_TOPIC_CONFIG: _on(_GET, topic_field="topic"),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _on(_GET, group_field="group"),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _on(_GET, group_field="consumerGroup"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _on(_GET, group_field="consumerGroup"),
    RequestCode.GET_CONSUME_STATS: _stats,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _on(
        _UPDATE, topic_field="topic", group_field="group"
    ),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _on(
        _GET, topic_field="topic", group_field="group"
    ),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _on(_GET, topic_field="topic"),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _on(_GET, topic_field="topic", group_field="group"),
    RequestCode.QUERY_CORRECTION_OFFSET: _corrections,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _on(_SUB, group_field="consumerGroup"),
    RequestCode.CLONE_GROUP_OFFSET: _on(_UPDATE, topic_field="topic", group_field="destGroup"),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _on(_UPDATE, topic_field="topic"),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _on(_GET, group_field="group"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _on(_GET, topic_field="topic", group_field="group"),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _on(
        _UPDATE, topic_field="topic", group_field="group"
    ),
}

_LOOKS = frozenset(
    {
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_EPOCH_CACHE,
    }
)
"""Looking, changing nothing, and none of it secret: every user may, as at a Java broker."""

_CLUSTER_GET = frozenset(
    {
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_TIMER_METRICS,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
    }
)

_CLUSTER_UPDATE = frozenset(
    {
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
    }
)

_NAME_SERVER_LOOKS = frozenset(
    {
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
    }
)

_NAME_SERVER_GET = frozenset({RequestCode.QUERY_DATA_VERSION, RequestCode.GET_BROKER_MEMBER_GROUP})

_NAME_SERVER_UPDATE = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
    }
)
