"""The operations of a broker: their names, what an account needs for each, and the calls."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import msgspec

from roquet.acl import needs
from roquet.broker.operations.wrapping import Operation, wrapped
from roquet.broker.services.light_reads import may_read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from roquet.broker.api.caller import Caller
    from roquet.broker.api.groups import DeleteGroupRequest, GroupListing, PutGroup
    from roquet.broker.api.offsets import (
        CommitRequest,
        CommitResult,
        CommittedRequest,
        OffsetByTimeRequest,
        QueueRequest,
    )
    from roquet.broker.api.pop import (
        ChangedInvisible,
        ChangeInvisibleRequest,
        PopAckRequest,
        PopRequest,
        PopResult,
    )
    from roquet.broker.api.query import QueryRequest, QueryResult, ViewRequest
    from roquet.broker.api.receive import (
        ReceiveRequest,
        ReceiveResult,
        SumsRequest,
        SumsResult,
    )
    from roquet.broker.api.replies import ReplyResult
    from roquet.broker.api.send import (
        RecallRequest,
        SendBackRequest,
        SendBatchRequest,
        SendRequest,
        SendResult,
        SequencedRequest,
        SequencedResult,
        SequenceRequest,
        SequenceState,
    )
    from roquet.broker.api.topics import PutTopic, TopicListing
    from roquet.broker.api.transactions import EndTransactionRequest, FindHalfRequest, HalfFound
    from roquet.broker.clients.long_polling import Waiter
    from roquet.broker.operations.wrapping import Wrapper
    from roquet.broker.pop.receive.acks import PopAcks
    from roquet.broker.pop.receive.service import PopService
    from roquet.broker.services.access import Access
    from roquet.broker.services.bundle import Services
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.topic import TopicConfig


def _nothing(_: object) -> tuple[()]:
    """Need an account and no right of it; a service asks once it knows what the data is."""
    return ()


SEND = Operation("send_message", lambda it: needs.publish(it.topic))
SEND_BATCH = Operation("send_batch_message", lambda it: needs.publish(it.topic))
SEND_IN_SEQUENCE = Operation("send_in_sequence", lambda it: needs.publish(it.topic))
SEQUENCE = Operation("get_sequences", lambda it: needs.publish(it.topic))
REPLY = Operation("send_reply_message", lambda it: needs.reply(it.topic))
RECALL = Operation("recall_message", lambda it: needs.publish(it.topic))
RECEIVE = Operation("pull_message", lambda it: needs.subscribe(it.topic, it.group))
RESUME = Operation("pull_message", lambda it: needs.subscribe(it.topic, it.group))
"""The rest of a receive that waited for a message."""
SUMS = Operation("get_sums", lambda it: needs.subscribe(it.topic, it.group))
COMMIT = Operation("update_consumer_offset", lambda it: needs.subscribe(it.topic, it.group))
COMMITTED = Operation("query_consumer_offset", lambda it: needs.subscribe(it.topic, it.group))
MIN_OFFSET = Operation("get_min_offset", lambda it: needs.know(it.topic))
MAX_OFFSET = Operation("get_max_offset", lambda it: needs.know(it.topic))
BY_TIME = Operation("search_offset_by_timestamp", lambda it: needs.know(it.topic))
QUERY = Operation("query_message", lambda it: needs.read(it.topic))
VIEW = Operation("view_message_by_id", _nothing)
SEND_BACK = Operation("consumer_send_msg_back", lambda it: [needs.group(it.group)])
END = Operation("end_transaction", lambda it: [needs.producer(it.producer_group)])
FIND_HALF = Operation("query_message", lambda it: needs.publish(it.topic))
PUT_TOPICS = Operation("update_and_create_topic", None)
DELETE_TOPIC = Operation("delete_topic_in_broker", None)
TOPIC = Operation("get_topic_config", needs.know)
TOPICS = Operation("get_all_topic_config", _nothing)
PUT_GROUPS = Operation("update_and_create_subscriptiongroup", None)
DELETE_GROUP = Operation("delete_subscriptiongroup", None)
GROUP = Operation("get_subscriptiongroup_config", lambda name: [needs.group(name)])
GROUPS = Operation("get_all_subscriptiongroup_config", _nothing)
POP = Operation("pop_message", lambda it: needs.popped(it.topic, it.group))
ACK = Operation("ack_message", lambda it: needs.popped(it.topic, it.group))
CHANGE_INVISIBLE = Operation(
    "change_message_invisibletime", lambda it: needs.popped(it.topic, it.group)
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What a front calls; each call takes a request and its caller, and may raise Refusal."""

    check_open: Callable[[], None]
    """Raises Refusal(BUSY) when no send is taken at the moment."""
    send: Callable[[SendRequest, Caller], Awaitable[SendResult]]
    send_batch: Callable[[SendBatchRequest, Caller], Awaitable[SendResult]]
    send_in_sequence: Callable[[SequencedRequest, Caller], Awaitable[SequencedResult]]
    sequence: Callable[[SequenceRequest, Caller], Awaitable[SequenceState]]
    reply: Callable[[SendRequest, Caller], Awaitable[ReplyResult]]
    recall: Callable[[RecallRequest, Caller], Awaitable[str]]
    receive: Callable[[ReceiveRequest, Caller], Awaitable[ReceiveResult]]
    receive_or_hold: Callable[
        [ReceiveRequest, Caller, Waiter, Callable[[], None]], ReceiveResult | None
    ]
    resume: Callable[[ReceiveRequest, Caller], ReceiveResult]
    sums: Callable[[SumsRequest, Caller], Awaitable[SumsResult]]
    commit: Callable[[CommitRequest, Caller], CommitResult]
    committed: Callable[[CommittedRequest, Caller], int]
    min_offset: Callable[[QueueRequest, Caller], int]
    max_offset: Callable[[QueueRequest, Caller], int]
    by_time: Callable[[OffsetByTimeRequest, Caller], int]
    query: Callable[[QueryRequest, Caller], QueryResult]
    view: Callable[[ViewRequest, Caller], Awaitable[bytes]]
    send_back: Callable[[SendBackRequest, Caller], Awaitable[None]]
    end_transaction: Callable[[EndTransactionRequest, Caller], Awaitable[None]]
    find_half: Callable[[FindHalfRequest, Caller], HalfFound | None]
    put_topics: Callable[[Sequence[PutTopic], Caller], Awaitable[None]]
    delete_topic: Callable[[str, Caller], Awaitable[None]]
    topic: Callable[[str, Caller], TopicConfig]
    put_groups: Callable[[Sequence[PutGroup], Caller], Awaitable[None]]
    delete_group: Callable[[DeleteGroupRequest, Caller], Awaitable[None]]
    group: Callable[[str, Caller], Awaitable[SubscriptionGroupConfig]]
    topics: Callable[[None, Caller], TopicListing]
    groups: Callable[[None, Caller], GroupListing]
    pop: Callable[[PopRequest, Caller], Awaitable[PopResult]]
    """Takes what is there; a front that wants to wait asks again when it is told of a message."""
    ack: Callable[[PopAckRequest, Caller], Awaitable[None]]
    change_invisible: Callable[[ChangeInvisibleRequest, Caller], Awaitable[ChangedInvisible]]


def make_operations(
    it: Services,
    pops: PopService,
    acks: PopAcks,
    wrappers: Sequence[Wrapper],
    access: Access,
) -> Operations:
    """Put the wrappers around what the services do."""

    async def pop(request: PopRequest, caller: Caller) -> PopResult:
        allowed = may_read(access, caller)
        return await pops.pop(msgspec.structs.replace(request, may_read=allowed))

    async def ack(request: PopAckRequest, caller: Caller) -> None:
        await acks.ack(request, caller.address)

    async def change(request: ChangeInvisibleRequest, caller: Caller) -> ChangedInvisible:
        allowed = may_read(access, caller)
        asked = msgspec.structs.replace(request, may_read=allowed)
        return await acks.change_invisible(asked, caller.address)

    def topics(_: None, caller: Caller) -> TopicListing:
        return it.topics.all(caller)

    def groups(_: None, caller: Caller) -> GroupListing:
        return it.groups.all(caller)

    return Operations(
        check_open=it.sends.check_open,
        send=wrapped(SEND, it.sends.send, wrappers),
        send_batch=wrapped(SEND_BATCH, it.sends.send_batch, wrappers),
        send_in_sequence=wrapped(SEND_IN_SEQUENCE, it.sequenced.send, wrappers),
        sequence=wrapped(SEQUENCE, it.sequenced.get, wrappers),
        reply=wrapped(REPLY, it.replies.reply, wrappers),
        recall=wrapped(RECALL, it.recalls.recall, wrappers),
        receive=wrapped(RECEIVE, it.receives.receive, wrappers),
        receive_or_hold=wrapped(RECEIVE, it.receives.receive_or_hold, wrappers),
        resume=wrapped(RESUME, it.receives.resume, wrappers),
        sums=wrapped(SUMS, it.receives.sums, wrappers),
        commit=wrapped(COMMIT, it.offsets.commit, wrappers),
        committed=wrapped(COMMITTED, it.offsets.committed, wrappers),
        min_offset=wrapped(MIN_OFFSET, it.offsets.min_offset, wrappers),
        max_offset=wrapped(MAX_OFFSET, it.offsets.max_offset, wrappers),
        by_time=wrapped(BY_TIME, it.offsets.by_time, wrappers),
        query=wrapped(QUERY, it.queries.by_key, wrappers),
        view=wrapped(VIEW, it.queries.by_place, wrappers),
        send_back=wrapped(SEND_BACK, it.send_backs.send_back, wrappers),
        end_transaction=wrapped(END, it.transactions.end, wrappers),
        find_half=wrapped(FIND_HALF, it.queries.half, wrappers),
        put_topics=wrapped(PUT_TOPICS, it.topics.put, wrappers),
        delete_topic=wrapped(DELETE_TOPIC, it.topics.delete, wrappers),
        topic=wrapped(TOPIC, it.topics.get, wrappers),
        topics=wrapped(TOPICS, topics, wrappers),
        put_groups=wrapped(PUT_GROUPS, it.groups.put, wrappers),
        delete_group=wrapped(DELETE_GROUP, it.groups.delete, wrappers),
        group=wrapped(GROUP, it.groups.get, wrappers),
        groups=wrapped(GROUPS, groups, wrappers),
        pop=wrapped(POP, pop, wrappers),
        ack=wrapped(ACK, ack, wrappers),
        change_invisible=wrapped(CHANGE_INVISIBLE, change, wrappers),
    )
