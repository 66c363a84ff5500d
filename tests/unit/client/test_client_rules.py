"""The pure parts of the client: URLs, routes, shares, retries, offsets in hand, encoding."""

from __future__ import annotations

import random

import pytest

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.client._cluster import target
from roquet.client._cluster.routes import RouteBook, auto_created, publish_queues, subscribe_queues
from roquet.client._options import ConsumerOptions, ProducerOptions
from roquet.client._queues.process_queue import NOTHING, ProcessQueue
from roquet.client._queues.rebalance import average
from roquet.client._sending.encode import compose, encode_batches, encode_one
from roquet.client._sending.retry import may_retry
from roquet.model.message import Message, StoredMessage
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, QueueData, TopicRoute
from roquet.protocol import properties
from roquet.protocol.codes import ResponseCode
from roquet.protocol.messages import batch, compression


def _message(offset: int, size: int = 10) -> StoredMessage:
    return StoredMessage(
        topic="t",
        body=b"x" * size,
        properties={},
        msg_id="",
        queue_id=0,
        queue_offset=offset,
        physical_offset=0,
        store_size=0,
        born_timestamp=0,
        born_host="",
        store_timestamp=0,
        store_host="",
    )


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("rmq://127.0.0.1:9876", ("127.0.0.1:9876",)),
        ("rmq://a;b:1;;a", ("a:9876", "b:1")),
        ("host:5", ("host:5",)),
        ("rmq://[::1]:7;[::1]", ("[::1]:7", "[::1]:9876")),
    ],
)
def test_urls(url: str, addresses: tuple[str, ...]) -> None:
    assert target.parse(url).name_servers == addresses


@pytest.mark.parametrize(
    "url", ["", "rmq://", "ftp://a:1", "rmq://a:1/x", "rmq://a:1?x=y", "a:x", "rmq://a:99999"]
)
def test_bad_urls_say_what_a_good_one_is(url: str) -> None:
    with pytest.raises(UsageError, match=r"rmq://|host:port|port"):
        target.parse(url)


# --- routes ----------------------------------------------------------------------------------


def _route(*brokers: tuple[str, dict[int, str], int]) -> TopicRoute:
    return TopicRoute(
        queues=tuple(
            QueueData(broker_name=name, read_queues=3, write_queues=2, perm=perm)
            for name, _, perm in brokers
        ),
        brokers=tuple(
            BrokerData(cluster="c", broker_name=name, addresses=addresses)
            for name, addresses, _ in brokers
        ),
    )


def test_queues_of_a_route() -> None:
    route = _route(
        ("b", {0: "h:2"}, 6),
        ("a", {0: "h:1"}, 6),
        ("slave-only", {1: "h:3"}, 6),
        ("ro", {0: "h"}, 4),
    )
    assert publish_queues("t", route) == tuple(
        MessageQueue("t", name, number) for name in "ab" for number in range(2)
    )
    readable = subscribe_queues("t", route)
    assert [queue.broker_name for queue in readable[::3]] == ["a", "b", "ro", "slave-only"]
    assert subscribe_queues("t", _route(("w", {0: "h"}, 2))) == ()


def test_ordered_topics_have_a_fixed_list() -> None:
    route = TopicRoute(order_topic_conf="b:1;a:2;broken;x:y")
    assert [(q.broker_name, q.queue_id) for q in publish_queues("t", route)] == [
        ("b", 0),
        ("a", 0),
        ("a", 1),
    ]


def test_a_topic_to_be_created_has_at_most_four_queues() -> None:
    template = TopicRoute(queues=(QueueData(broker_name="a", read_queues=8, write_queues=8),))
    assert auto_created(template).queues[0].write_queues == 4


def test_the_route_book() -> None:
    book = RouteBook()
    route = _route(("a", {0: "h:1", 1: "h:2"}, 6))
    assert book.update("t", route)
    assert not book.update("t", route)
    assert book.update("t", _route(("a", {0: "h:9", 1: "h:2"}, 6)))
    assert book.master("a") == "h:9"
    assert book.address("a", 1) == "h:2"
    assert book.address("a", 5) == "h:9"
    assert book.address("b") is None
    book.update("u", _route(("s", {1: "h:3"}, 6)))
    assert book.master("s") is None
    assert book.address("s") == "h:3"
    book.forget("u")
    book.drop_unused_brokers()
    assert book.topics() == ["t"]
    assert set(book.brokers()) == {"a"}


# --- shares ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(100))
def test_shares_cover_every_queue_once(seed: int) -> None:
    draw = random.Random(seed)
    queues = [MessageQueue("t", f"b{n % 3}", n // 3) for n in range(draw.randrange(20))]
    clients = [f"10.0.0.{draw.randrange(99)}@{n}" for n in range(1, draw.randrange(2, 9))]
    draw.shuffle(queues)
    shares = [average(queues, clients, me) for me in clients]
    assert sorted(queue for share in shares for queue in share) == sorted(queues)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_shares_are_java_s() -> None:
    queues = [MessageQueue("t", "b", number) for number in range(5)]
    assert [queue.queue_id for queue in average(queues, ["c2", "c1"], "c1")] == [0, 1, 2]
    assert [queue.queue_id for queue in average(queues, ["c2", "c1"], "c2")] == [3, 4]
    assert average(queues, ["c1"], "stranger") == ()
    assert average([], ["c1"], "c1") == ()
    assert len(average(queues[:1], ["a", "b"], "b")) == 0


# --- retries ---------------------------------------------------------------------------------


def test_what_may_be_sent_again() -> None:
    assert may_retry(Unreachable(), retry_unknown=False)
    assert not may_retry(OutcomeUnknown(), retry_unknown=False)
    assert may_retry(OutcomeUnknown(), retry_unknown=True)
    assert not may_retry(UsageError(), retry_unknown=True)
    again = {code for code in ResponseCode if may_retry(Refused(code, ""), retry_unknown=False)}
    assert {int(code) for code in again} == {1, 2, 14, 16, 17, 204, 205, 1500}


# --- messages in hand ------------------------------------------------------------------------


def test_the_lowest_unfinished_offset_is_committed() -> None:
    held = ProcessQueue(MessageQueue("t", "b", 0), 0)
    assert held.commit_offset == NOTHING
    assert len(held.add([_message(n) for n in (5, 6, 8)])) == 3
    assert held.add([_message(6)]) == []
    assert (held.count, held.size, held.span, held.bounds) == (3, 30, 3, (5, 8))
    assert held.remove(6) == 5
    assert held.remove(6) == 5
    assert held.remove(5) == 8
    assert held.remove(8) == 9
    assert (held.count, held.size, held.span, held.bounds) == (0, 0, 0, (0, 0))
    held.add([_message(12)])
    assert held.commit_offset == 12
    assert held.holds(12)


@pytest.mark.parametrize("seed", range(50))
def test_no_order_of_acknowledgements_commits_an_unfinished_message(seed: int) -> None:
    draw = random.Random(seed)
    held = ProcessQueue(MessageQueue("t", "b", 0), 0)
    open_offsets: set[int] = set()
    top = 0
    for _ in range(200):
        if draw.random() < 0.4:
            top += draw.randrange(1, 3)
            held.add([_message(top)])
            open_offsets.add(top)
        elif open_offsets:
            done = draw.choice(sorted(open_offsets))
            open_offsets.remove(done)
            commit = held.remove(done)
            assert commit == min(open_offsets, default=top + 1)


def test_fetching_pauses() -> None:
    options = ConsumerOptions(queue_messages_max=2, queue_bytes_max=100, queue_span_max=10)
    held = ProcessQueue(MessageQueue("t", "b", 0), 0)
    held.add([_message(0)])
    assert not held.is_full(options, ordered=False)
    held.add([_message(11)])
    assert held.is_full(options, ordered=False)
    assert not held.is_full(options, ordered=True)
    held.add([_message(12, 100)])
    assert held.is_full(options, ordered=True)


def test_locks_grow_old() -> None:
    held = ProcessQueue(MessageQueue("t", "b", 0), 0)
    assert not held.lock_is_fresh(0)
    held.locked_at_ms = 1000
    assert held.lock_is_fresh(30_999)
    assert not held.lock_is_fresh(31_000)


# --- encoding --------------------------------------------------------------------------------

OPTIONS = ProducerOptions()


def test_a_message_is_encoded() -> None:
    message = compose("t", "é", "A", "k1", user_properties={"x": "y"}, delay_level=3)
    found = encode_one(message, "ID", OPTIONS)
    assert found.body == "é".encode()
    assert properties.read(found.properties) == {
        "x": "y",
        "TAGS": "A",
        "KEYS": "k1",
        "DELAY": "3",
        "UNIQ_KEY": "ID",
    }
    assert (found.sys_flag, found.message_ids, found.is_batch) == (0, ("ID",), False)
    unwaited = encode_one(Message("t", b"x", wait_store_ok=False), "ID", OPTIONS)
    assert properties.read(unwaited.properties)["WAIT"] == "false"


def test_big_bodies_are_compressed_when_it_helps() -> None:
    found = encode_one(Message("t", b"x" * 4096), "ID", OPTIONS)
    assert found.sys_flag == 0x301
    assert compression.body_of(found.body, found.sys_flag) == b"x" * 4096
    noise = random.Random(1).randbytes(5000)
    assert encode_one(Message("t", noise), "ID", OPTIONS).body == noise
    assert encode_one(Message("t", b"x" * 4095), "ID", OPTIONS).sys_flag == 0
    never = ProducerOptions(compress_over=0)
    assert encode_one(Message("t", b"x" * 9999), "ID", never).sys_flag == 0


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b""),
        Message("bad topic", b"x"),
        Message("SCHEDULE_TOPIC_XXXX", b"x"),
        Message("t", b"x" * (4 * 1024 * 1024 + 1)),
        Message("t", b"x", keys=("a b",)),
        Message("t", b"x", keys=("",)),
        Message("t", b"x", properties={"KEYS": "x"}),
        Message("t", b"x", properties={"TRAN_MSG": "true"}),
        Message("t", b"x", properties={"a\x01": "x"}),
        Message("t", b"x", properties={"a": "x" * 40_000}),
        Message("t", b"x", tag="a\x02b"),
    ],
)
def test_messages_that_no_broker_should_see(message: Message) -> None:
    with pytest.raises(UsageError):
        encode_one(message, "ID", OPTIONS)


def test_batches_are_split() -> None:
    options = ProducerOptions(message_size_max=1010)
    messages = [Message("t", b"x" * 300) for _ in range(7)]
    ids = [f"ID{n}" for n in range(7)]
    parts = encode_batches(messages, ids, options)
    assert [len(part.message_ids) for part in parts] == [3, 3, 1]
    assert [len(batch.decode(part.body)) for part in parts] == [3, 3, 1]
    assert all(part.is_batch and len(part.body) <= 1010 for part in parts)
    flag, body, text = batch.decode(parts[1].body)[0]
    assert (flag, body, properties.read(text)) == (0, b"x" * 300, {"UNIQ_KEY": "ID3"})


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message("t", b"x"), Message("u", b"x")],
        [Message("t", b"x"), Message("t", b"x", delay_level=1)],
        [Message("t", b"x", properties={"TIMER_DELAY_SEC": "1"})],
        [Message("t", b"x"), Message("t", b"x", wait_store_ok=False)],
        [Message("%RETRY%g", b"x")],
        [Message("t", b"x" * 999)],
    ],
)
def test_batches_that_cannot_be(messages: list[Message]) -> None:
    options = ProducerOptions(message_size_max=1000)
    with pytest.raises(UsageError):
        encode_batches(messages, [str(n) for n in range(len(messages))], options)
