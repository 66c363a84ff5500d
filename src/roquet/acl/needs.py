"""What each request needs: which permission on which topics and groups, or an administrator.

The table follows RocketMQ 4.9 where that checks anything. It is stricter in four places: rights
belong to data, whichever code asks for it, so that questions of operators need those of what they
are about; what is not listed needs an administrator (4.9 lets any account make accounts, codes 50
and 53); requests that 4.9 forgot (batches, offsets, queue locks, producer groups) are checked as
well; and where a header does not say which topic it is about (a place in the log, the end of a
transaction, a body) the handler asks `acl.rights` once it has read the message or the body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from roquet.acl.accounts import Perm
from roquet.protocol.codes import RequestCode
from roquet.protocol.names import REPLY_SUFFIX, RETRY_PREFIX, is_waiting_room
from roquet.protocol.pop.topics import normal_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roquet.protocol.bodies.clients import CheckClient, HeartbeatData
    from roquet.protocol.bodies.locks import LockRequest
    from roquet.protocol.command import Command
    from roquet.protocol.pop.batch_ack import BatchAckBody

TOPICS_AT_ONCE = 200
"""Topics of a long body that are checked before others have their turn."""


class Need(NamedTuple):
    """A permission on a topic or a group; any of the bits of `perm` will do.

    SUB is about consumer groups. PUB is about producer groups: the accounts that `groupPerms` names
    for it, or everybody where no account is named.
    """

    is_group: bool
    name: str
    perm: Perm


Needs = Callable[["Command"], "Sequence[Need] | None"]
"""Returns what an account needs for a request; None: it has to be an administrator's."""


def topic(name: str, perm: Perm) -> Need:
    """Return a need of a topic; a retry topic is its group's, which has to be allowed to read."""
    if name.startswith(RETRY_PREFIX):
        return group(name)
    return Need(is_group=False, name=name, perm=perm)


def group(name: str) -> Need:
    """Return a need of a consumer group, given by its own name or that of its retry topic."""
    return Need(is_group=True, name=name.removeprefix(RETRY_PREFIX), perm=Perm.SUB)


def producer(name: str) -> Need:
    """Return a need of a producer group: what joins it is asked about its half messages."""
    return Need(is_group=True, name=name, perm=Perm.PUB)


def shown_producer(name: str) -> Need:
    """Return what being shown a producer group needs: any right on the name, which is data."""
    return Need(is_group=True, name=name, perm=Perm.BOTH)


def publish(name: str) -> list[Need]:
    """Return what sending to a topic needs."""
    return [topic(name, Perm.PUB)]


def reply(name: str) -> list[Need]:
    """Return what a reply in a topic needs.

    The cluster's topic for replies is nobody's: what matters is who asked. Which one that is the
    service knows, and asks for the permission on any other.
    """
    return [] if name.endswith(REPLY_SUFFIX) else publish(name)


def subscribe(name: str, group_name: str) -> list[Need]:
    """Return what a group's reads and commits need in a topic."""
    return [topic(name, Perm.SUB), group(group_name)]


def popped(name: str, group_name: str) -> list[Need]:
    """Return what a group's pops and acknowledgements need in a topic.

    Redelivered messages lie in a topic of the group's, and are those of the topic in its name.
    """
    return [topic(normal_topic(name, group_name) or name, Perm.SUB), group(group_name)]


def read(name: str) -> list[Need]:
    """Return what looking at a topic's messages needs."""
    return [topic(name, Perm.SUB | Perm.GET)]


def know(name: str) -> list[Need]:
    """Return what asking for a topic's offsets needs: either right."""
    return [topic(name, Perm.BOTH | Perm.GET)]


def broker_needs(command: Command) -> Sequence[Need] | None:
    """Return what a request to a broker needs beside what its handler asks for."""
    reader = _BY_CODE.get(command.code)
    if reader is None:
        return () if command.code in _ANY_ACCOUNT else None
    return reader(command, command.ext or {})


def name_server_needs(command: Command) -> Sequence[Need] | None:
    """Return what a request to a name server needs: asking, any account; the rest, admin's."""
    return () if command.code in _ANY_ACCOUNT_OF_NAME_SERVER else None


_Ext = dict[str, str]


def _publish(_: Command, ext: _Ext) -> list[Need]:
    return publish(ext.get("topic", ""))


def _publish_short(_: Command, ext: _Ext) -> list[Need]:
    return publish(ext.get("b", ""))


def _reply_short(_: Command, ext: _Ext) -> list[Need]:
    return reply(ext.get("b", ""))


def _reply_long(_: Command, ext: _Ext) -> list[Need]:
    return reply(ext.get("topic", ""))


def _subscribe(_: Command, ext: _Ext) -> list[Need]:
    return subscribe(ext.get("topic", ""), ext.get("consumerGroup", ""))


def _pop(_: Command, ext: _Ext) -> list[Need]:
    return popped(ext.get("topic", ""), ext.get("consumerGroup", ""))


def _light_topic(_: Command, ext: _Ext) -> list[Need]:
    return read(ext.get("parentTopic", ""))


def _light_client(_: Command, ext: _Ext) -> list[Need]:
    return subscribe(ext.get("parentTopic", ""), ext.get("group", ""))


def _light_group(_: Command, ext: _Ext) -> list[Need]:
    # The service asks for the permission on the parent, which only the group's attributes say.
    return [group(ext.get("group", ""))]


def _read_topic(_: Command, ext: _Ext) -> list[Need]:
    return read(ext.get("topic", ""))


def _know_topic(_: Command, ext: _Ext) -> list[Need]:
    return know(ext.get("topic", ""))


def _member(_: Command, ext: _Ext) -> list[Need]:
    name = ext.get("consumerGroup")
    return [group(name)] if name else []


def _members(_: Command, ext: _Ext) -> list[Need]:
    return [group(ext.get("consumerGroup", ""))]


def _producers(_: Command, ext: _Ext) -> list[Need]:
    return [shown_producer(ext.get("producerGroup", ""))]


def _group(_: Command, ext: _Ext) -> list[Need]:
    return [group(ext.get("group", ""))]


def _know_group(_: Command, ext: _Ext) -> list[Need]:
    return [*know(ext.get("topic", "")), group(ext.get("group", ""))]


def named_topics(ext: Mapping[str, str]) -> list[str] | None:
    """Return the topics that a question for a group's progress names, none for all that it reads.

    None: there are too many for anybody but an administrator.
    """
    name = ext.get("topic", "")
    names = [name] if name.strip() else [it for it in ext.get("topicList", "").split(";") if it]
    return names if len(names) <= TOPICS_AT_ONCE else None


def _progress(_: Command, ext: _Ext) -> list[Need] | None:
    topics = named_topics(ext)
    if topics is None:
        return None
    found = [topic(name, Perm.BOTH | Perm.GET) for name in topics]
    return [group(ext.get("consumerGroup", "")), *found]


def compared_groups(ext: Mapping[str, str]) -> list[str] | None:
    """Return the groups that a question for corrections names; None: too many."""
    names = [ext.get("compareGroup", ""), *ext.get("filterGroups", "").split(",")]
    found = list(dict.fromkeys(name for name in names if name.strip()))
    return found if len(found) <= TOPICS_AT_ONCE else None


def _corrections(_: Command, ext: _Ext) -> list[Need] | None:
    groups = compared_groups(ext)
    if groups is None:
        return None
    return [*know(ext.get("topic", "")), *(group(name) for name in groups or [""])]


def _rates(_: Command, ext: _Ext) -> list[Need] | None:
    # `topic`, `queue@topic`, `topic@group` or `queue@topic@group`: no legal name has an `@`.
    name, key = ext.get("statsName", ""), ext.get("statsKey", "").split("@")
    if name.startswith("TOPIC_PUT_"):
        return know(key[-1])
    if name.startswith(("GROUP_GET_", "SNDBCK_PUT_")) and len(key) >= 2:
        return [*know(key[-2]), group(key[-1])]
    return None


def _send_back(_: Command, ext: _Ext) -> list[Need]:
    return [group(ext.get("group", ""))]


def end_of(ext: Mapping[str, str]) -> list[Need]:
    """Return what ending a transaction needs, by the fields of its header.

    Which topic it is about says the half message; the handler asks for that one.
    """
    name = ext.get("topic")
    found = [topic(name, Perm.PUB)] if name and not is_waiting_room(name) else []
    return [*found, producer(ext.get("producerGroup", ""))]


def _end_transaction(_: Command, ext: _Ext) -> list[Need]:
    return end_of(ext)


def _by_place(_: Command, __: _Ext) -> list[Need]:
    # The handler asks for the permission on the topic of the message that it finds.
    return []


def _by_body(_: Command, __: _Ext) -> list[Need]:
    # The handler asks, by the functions below, once it has read the body in slices.
    return []


def heartbeat_needs(data: HeartbeatData) -> Iterator[list[Need]]:
    """Yield what a heartbeat needs, a group at a time: it may name thousands of topics."""
    for name in data.producers:
        yield [producer(name)]
    for consumer in data.consumers:
        yield [group(consumer.group)]
        subscriptions = consumer.subscriptions
        for at in range(0, len(subscriptions), TOPICS_AT_ONCE):
            part = subscriptions[at : at + TOPICS_AT_ONCE]
            yield [topic(one.topic, Perm.SUB) for one in part]


def check_needs(asked: CheckClient) -> list[Need]:
    """Return what the check of a subscription needs."""
    found = [group(asked.group)]
    if asked.subscription is not None:
        found.append(topic(asked.subscription.topic, Perm.SUB))
    return found


def batch_ack_needs(body: BatchAckBody) -> Iterator[list[Need]]:
    """Yield what a batch of acknowledgements needs, a topic and group at a time."""
    for topic_name, group_name in dict.fromkeys((ack.topic, ack.group) for ack in body.acks):
        yield popped(topic_name, group_name)


def lock_needs(asked: LockRequest) -> Iterator[list[Need]]:
    """Yield what a request for locks needs, some topics at a time."""
    yield [group(asked.group)]
    topics = sorted({queue.topic for queue in asked.queues})
    for at in range(0, len(topics), TOPICS_AT_ONCE):
        yield [topic(name, Perm.SUB) for name in topics[at : at + TOPICS_AT_ONCE]]


_BY_CODE: dict[int, Callable[[Command, _Ext], list[Need] | None]] = {
    RequestCode.SEND_MESSAGE: _publish,
    RequestCode.SEND_MESSAGE_V2: _publish_short,
    RequestCode.SEND_BATCH_MESSAGE: _publish_short,
    RequestCode.SEND_IN_SEQUENCE: _publish,
    RequestCode.GET_SEQUENCES: _publish,
    RequestCode.SEND_REPLY_MESSAGE: _reply_long,
    RequestCode.SEND_REPLY_MESSAGE_V2: _reply_short,
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.END_TRANSACTION: _end_transaction,
    RequestCode.RECALL_MESSAGE: _publish,
    RequestCode.PULL_MESSAGE: _subscribe,
    RequestCode.LITE_PULL_MESSAGE: _subscribe,
    RequestCode.GET_SUMS: _subscribe,
    RequestCode.POP_MESSAGE: _pop,
    RequestCode.PEEK_MESSAGE: _pop,
    RequestCode.NOTIFICATION: _pop,
    RequestCode.POLLING_INFO: _pop,
    RequestCode.ACK_MESSAGE: _pop,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _pop,
    RequestCode.BATCH_ACK_MESSAGE: _by_body,
    RequestCode.POP_LITE_MESSAGE: _subscribe,
    RequestCode.LITE_SUBSCRIPTION_CTL: _by_body,
    RequestCode.GET_PARENT_TOPIC_INFO: _read_topic,
    RequestCode.GET_LITE_TOPIC_INFO: _light_topic,
    RequestCode.GET_LITE_CLIENT_INFO: _light_client,
    RequestCode.GET_LITE_GROUP_INFO: _light_group,
    RequestCode.TRIGGER_LITE_DISPATCH: _light_group,
    RequestCode.QUERY_MESSAGE: _read_topic,
    RequestCode.VIEW_MESSAGE_BY_ID: _by_place,
    RequestCode.QUERY_CONSUME_QUEUE: _read_topic,
    RequestCode.QUERY_CONSUMER_OFFSET: _subscribe,
    RequestCode.UPDATE_CONSUMER_OFFSET: _subscribe,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _know_topic,
    RequestCode.GET_MAX_OFFSET: _know_topic,
    RequestCode.GET_MIN_OFFSET: _know_topic,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _know_topic,
    RequestCode.HEART_BEAT: _by_body,
    RequestCode.CHECK_CLIENT_CONFIG: _by_body,
    RequestCode.UNREGISTER_CLIENT: _member,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _member,
    RequestCode.LOCK_BATCH_MQ: _by_body,
    RequestCode.UNLOCK_BATCH_MQ: _by_body,
    RequestCode.QUERY_ASSIGNMENT: _by_body,
    RequestCode.GET_TOPIC_STATS_INFO: _know_topic,
    RequestCode.GET_TOPIC_CONFIG: _know_topic,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _know_topic,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _members,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _members,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _producers,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _group,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _group,
    RequestCode.GET_CONSUME_STATS: _progress,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _know_group,
    RequestCode.QUERY_CONSUME_TIME_SPAN: _know_group,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _know_group,
    RequestCode.QUERY_CORRECTION_OFFSET: _corrections,
    RequestCode.VIEW_BROKER_STATS_DATA: _rates,
}

OWN_RULES = frozenset(_BY_CODE)
"""Requests that need rights on what they name."""

_ANY_ACCOUNT = frozenset(
    {
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_EPOCH_CACHE,
    }
)
"""Looking, changing nothing, and none of it about what somebody's messages or groups do.

What is about all topics or groups at once (43, 61, 317, 328, 402) is an administrator's, since an
answer that leaves some out would look whole to the slave or the operator that gets it.
"""

_ANY_ACCOUNT_OF_NAME_SERVER = frozenset(
    {
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.GET_BROKER_MEMBER_GROUP,
    }
)
