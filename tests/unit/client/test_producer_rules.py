"""Where a producer sends each message, how often it tries, and what it tells its caller."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from remoting_harness import on_loop
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.client._cluster.namespace import Namespace
from roquet.client._options import ConsumerOptions, ProducerOptions
from roquet.client._queues.process_queue import ProcessQueue
from roquet.client._replies import Replies
from roquet.client._sending.choosing import choose_by
from roquet.client._sending.encode import encode_one
from roquet.client._sending.producer import Producer
from roquet.model.message import Message, StoredMessage
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, QueueData, TopicRoute
from roquet.protocol import properties
from roquet.protocol.bodies.routes import ClusterInfo
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.java_hash import java_hash
from roquet.protocol.messages import batch

if TYPE_CHECKING:
    from collections.abc import Sequence

A0, A1, B0 = (MessageQueue("t", *place) for place in (("a", 0), ("a", 1), ("b", 0)))
BUSY = Refused(ResponseCode.SYSTEM_BUSY, "busy")
BROKEN = Refused(ResponseCode.SYSTEM_ERROR, "broken")
NEVER = Refused(ResponseCode.MESSAGE_ILLEGAL, "no")


def route(*names: str) -> TopicRoute:
    return TopicRoute(
        queues=tuple(
            QueueData(broker_name=name, read_queues=8, write_queues=8, perm=6) for name in names
        ),
        brokers=tuple(
            BrokerData(cluster="c", broker_name=name, addresses={0: f"{name}:1"}) for name in names
        ),
    )


def stored(body: bytes, own: dict[str, str]) -> StoredMessage:
    """Return a message with properties as a broker gives it."""
    return StoredMessage(
        topic="t",
        body=body,
        properties=own,
        msg_id="",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        store_size=0,
        born_timestamp=0,
        born_host="",
        store_timestamp=0,
        store_host="",
    )


class World:
    """The session of a producer: brokers that answer what the test says; time stands still."""

    def __init__(self, *outcomes: Exception | str, **options: Any) -> None:
        self.now_s = 1000.0
        self.outcomes = list(outcomes)
        self.sent: list[tuple[str, Command, float]] = []
        self.told: list[tuple[str, Command]] = []
        self.slept: list[float] = []
        self.asked: list[tuple[str, float]] = []
        self.known: tuple[MessageQueue, ...] = (A0, A1, B0)
        self.routes: dict[str, TopicRoute | Exception] = {}
        self.forgotten: list[str] = []
        self.each_s = 0.0
        self.hangs = False
        self.members: set[str] = set()
        self.left: list[str] = []
        self.replies = Replies(random.Random(1))
        self.answer: StoredMessage | None = None
        """What a consumer answers to a request, as soon as it is sent."""
        self.book = book = SimpleNamespace(
            publish_queues=lambda _topic: self.known, forget=self.forgotten.append
        )
        members = SimpleNamespace(
            add_producer=self.members.add, remove_producer=self._removed, client_id="c"
        )
        session = SimpleNamespace(
            namespace=Namespace(),
            tracer=None,
            members=members,
            book=book,
            client=SimpleNamespace(call=self._call),
            clock=SimpleNamespace(sleep=self._sleep, now_ms=lambda: 1_700_000_000_000),
            master=lambda name: f"{name}:1",
            tell=self._tell,
            beat_new=self._beat_new,
            route=self._route,
            refresh_route=self._refresh,
            unregister=self._unregister,
            name_servers=SimpleNamespace(
                addresses=("ns:1",), route=self._template, ask=self._brokers_of_cluster
            ),
        )
        self.brokers: dict[str, BrokerData] = {}
        self.producer = Producer(
            session=cast("Any", session),
            group="g",
            options=ProducerOptions(**options),
            ids=cast("Any", SimpleNamespace(make=lambda _ms: f"ID{len(self.sent)}")),
            rng=cast("Any", SimpleNamespace(randrange=lambda _n: 0)),
            replies=self.replies,
        )

    async def start(self) -> Producer:
        loop = asyncio.get_running_loop()
        loop.time = lambda: self.now_s  # type: ignore[method-assign]
        await self.producer.start()
        return self.producer

    def _removed(self, group: str) -> bool:
        self.members.remove(group)
        return True

    async def _unregister(self, *, producer: str) -> None:
        self.left.append(producer)

    async def _call(self, address: str, command: Command, timeout_s: float) -> Command:
        self.sent.append((address, command, timeout_s))
        self.now_s += self.each_s
        if self.hangs:
            await asyncio.Event().wait()
        if self.answer is not None:
            sent = properties.read((command.ext or {})["i"])
            name = properties.CORRELATION_ID
            own = {**self.answer.properties, name: sent[name]}
            self.replies.arrived(dataclasses.replace(self.answer, properties=own))
        outcome = self.outcomes.pop(0) if self.outcomes else "M"
        if isinstance(outcome, Exception):
            raise outcome
        queue_id = (command.ext or {}).get("e", "0")
        return Command(0, {"msgId": outcome, "queueId": queue_id, "queueOffset": "40"})

    async def _beat_new(self) -> None:
        assert self.sent == [], "the answer comes over the connection of heartbeats"
        self.asked.append(("heartbeat", 0.0))

    async def _tell(self, address: str, command: Command) -> None:
        self.told.append((address, command))

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    async def _template(self, topic: str) -> TopicRoute:
        return await self._route(topic, 3.0)

    async def _brokers_of_cluster(self, command: Command) -> Command:
        assert command.code == RequestCode.GET_BROKER_CLUSTER_INFO
        return Command(0, body=ClusterInfo(brokers=self.brokers, clusters={}).encode())

    async def _route(self, topic: str, timeout_s: float) -> TopicRoute:
        self.asked.append((topic, timeout_s))
        found = self.routes[topic]
        if isinstance(found, Exception):
            raise found
        return found

    async def _refresh(self, topic: str, timeout_s: float) -> None:
        self.asked.append((topic, timeout_s))
        raise Unreachable("the name server restarts as well")

    def places(self) -> list[tuple[str, str]]:
        """Return broker and queue of each request."""
        return [(address, (it.ext or {})["e"]) for address, it, _ in self.sent]


# --- where, and how often ------------------------------------------------------------------------


@on_loop
async def test_messages_go_to_one_queue_after_another() -> None:
    world = World()
    producer = await world.start()
    receipts = [await producer.send("t", b"m") for _ in range(4)]
    assert world.places() == [("a:1", "0"), ("a:1", "1"), ("b:1", "0"), ("a:1", "0")]
    assert [it.queue for it in receipts] == [A0, A1, B0, A0]
    assert all(timeout_s == 3.0 for _, _, timeout_s in world.sent)


@pytest.mark.parametrize("retries", [0, 1, 2])
@on_loop
async def test_send_that_is_refused_is_tried_at_other_brokers_so_often(retries: int) -> None:
    world = World(*[BROKEN] * 9, retries=retries)
    producer = await world.start()
    with pytest.raises(Refused, match="broken"):
        await producer.send("t", b"m")
    brokers = [address for address, _ in world.places()]
    assert brokers == ["a:1", "b:1", "a:1"][: 1 + retries]
    assert (world.slept, world.asked) == ([], [])


@pytest.mark.parametrize(
    ("fault", "options", "tries"),
    [
        (NEVER, {}, 1),
        (OutcomeUnknown("no answer"), {}, 1),
        (OutcomeUnknown("no answer"), {"retry_unknown": True}, 3),
    ],
)
@on_loop
async def test_send_is_tried_again_only_where_that_is_safe(
    fault: Exception, options: dict[str, Any], tries: int
) -> None:
    world = World(*[fault] * 9, **options)
    producer = await world.start()
    with pytest.raises(type(fault)):
        await producer.send("t", b"m")
    assert len(world.sent) == tries


@on_loop
async def test_only_broker_is_asked_again() -> None:
    world = World(BUSY, "M")
    world.known = (A0, A1)
    producer = await world.start()
    assert (await producer.send("t", b"m")).message_id == "ID0"
    assert world.places() == [("a:1", "0"), ("a:1", "1")]


@on_loop
async def test_next_try_goes_to_the_next_queue_of_another_broker() -> None:
    world = World(BUSY, BUSY, "M")
    world.known = (A0, A1, B0, MessageQueue("t", "b", 1))
    producer = await world.start()
    await producer.send("t", b"m")
    assert world.places() == [("a:1", "0"), ("b:1", "0"), ("a:1", "0")]


@pytest.mark.parametrize("by", ["queue", "order_key", "selector"])
@on_loop
async def test_chosen_queue_is_never_replaced(by: str) -> None:
    world = World(BROKEN)
    producer = await world.start()
    ways: dict[str, Any] = {
        "queue": B0,
        "order_key": "key",
        "selector": lambda queues, message: queues[len(message.body)],
    }
    with pytest.raises(Refused):
        await producer.send("t", b"mm", **{by: ways[by]})
    by_key = [A0, A1, B0][java_hash("key") % 3]
    expected = {"queue": B0, "selector": B0, "order_key": by_key}[by]
    assert world.places() == [(f"{expected.broker_name}:1", str(expected.queue_id))]


def test_queue_is_chosen_in_one_way_and_of_the_topic() -> None:
    message = Message("t", b"m")
    assert choose_by(message, None, None, None) is None
    first: Any = lambda queues, _message: queues[0]  # noqa: E731
    for ways in (("k", A0, None), ("k", None, first), (None, A0, first), ("k", A0, first)):
        with pytest.raises(UsageError, match="give one"):
            choose_by(message, *ways)
    with pytest.raises(UsageError, match="no queue of topic"):
        choose_by(message, None, MessageQueue("u", "a", 0), None)


# --- while brokers restart -----------------------------------------------------------------------


@on_loop
async def test_broker_that_cannot_be_reached_is_tried_until_the_time_is_over() -> None:
    world = World(*[Unreachable("away")] * 99)
    producer = await world.start()
    with pytest.raises(Unreachable):
        await producer.send("t", b"m", timeout_s=0.35)
    # Three tries at once, then one a pause.
    assert world.slept == pytest.approx([0.1, 0.1, 0.1, 0.05])
    assert [timeout_s for _, timeout_s in world.asked] == pytest.approx([0.25, 0.15, 0.05, 0.001])
    assert len(world.sent) == 3 + 3 + 1
    lefts = [timeout_s for _, _, timeout_s in world.sent]
    assert lefts == pytest.approx([0.35, 0.35, 0.35, 0.25, 0.15, 0.05, 0.001])


@on_loop
async def test_send_that_reaches_a_broker_in_time_is_no_failure() -> None:
    world = World(*[Unreachable("away")] * 4, "M")
    producer = await world.start()
    assert (await producer.send("t", b"m", queue=B0)).offset_id == "M"
    assert world.places() == [("b:1", "0")] * 5
    assert world.slept == [0.1] * 4


@on_loop
async def test_only_broker_is_asked_while_busy_until_the_time_is_over() -> None:
    world = World(*[BUSY] * 99)
    world.known = (A0, A1)
    producer = await world.start()
    with pytest.raises(Refused, match="busy"):
        await producer.send("t", b"m", timeout_s=3.0)
    assert world.slept == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.8, 0.7])
    # The master may be another one now.
    assert [topic for topic, _ in world.asked] == ["t"] * 6
    assert len(world.sent) == 7


@on_loop
async def test_busy_brokers_are_left_for_others_at_once_and_asked_again_after_pauses() -> None:
    world = World(*[BUSY] * 4, "M")
    producer = await world.start()
    assert (await producer.send("t", b"m")).offset_id == "M"
    assert [address for address, _ in world.places()] == ["a:1", "b:1", "a:1", "b:1", "a:1"]
    assert world.slept == pytest.approx([0.1, 0.2])


@on_loop
async def test_chosen_queue_of_a_busy_broker_is_asked_again() -> None:
    world = World(BUSY, BUSY, "M")
    producer = await world.start()
    assert (await producer.send("t", b"m", queue=B0)).offset_id == "M"
    assert world.places() == [("b:1", "0")] * 3
    assert world.slept == pytest.approx([0.1, 0.2])


@on_loop
async def test_busy_broker_is_asked_once_without_retries() -> None:
    world = World(*[BUSY] * 9, retries=0)
    producer = await world.start()
    with pytest.raises(Refused, match="busy"):
        await producer.send("t", b"m")
    assert (len(world.sent), world.slept) == (1, [])


@on_loop
async def test_send_whose_time_is_over_is_not_tried_again() -> None:
    world = World(*[BUSY] * 9)
    world.each_s = 1.5
    producer = await world.start()
    with pytest.raises(Refused):
        await producer.send("t", b"m", timeout_s=3.0)
    assert [timeout_s for _, _, timeout_s in world.sent] == [3.0, 1.5]


# --- topics --------------------------------------------------------------------------------------


@on_loop
async def test_topic_that_does_not_exist_is_made_after_the_template() -> None:
    world = World()
    world.known = ()
    missing = Refused(ResponseCode.TOPIC_NOT_EXIST, "none")
    world.routes = {"t": missing, "TBW102": route("a")}
    producer = await world.start()
    assert await producer.queues("t") == tuple(MessageQueue("t", "a", n) for n in range(4))
    assert world.asked == [("t", 3.0), ("TBW102", 3.0)]
    world.routes["TBW102"] = missing
    with pytest.raises(Unreachable, match="no broker is registered at ns:1"):
        await producer.queues("t")
    world.brokers["a"] = BrokerData(cluster="c", broker_name="a", addresses={0: "a:1"})
    with pytest.raises(Refused, match="create it first"):
        await producer.queues("t")
    world.routes["t"] = Refused(ResponseCode.SYSTEM_ERROR, "broken")
    asked = len(world.asked)
    with pytest.raises(Refused, match="broken") as caught:
        await producer.queues("t")
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert world.asked[asked:] == [("t", 3.0)], "the template is for topics that do not exist"
    world.routes["t"] = TopicRoute()
    with pytest.raises(Unreachable, match="no queue"):
        await producer.queues("t")
    assert world.forgotten == ["t"]


# --- receipts ------------------------------------------------------------------------------------


@on_loop
async def test_batch_goes_to_one_queue_a_request_with_a_receipt_for_each_message() -> None:
    world = World("A,B", "C,D", message_size_max=750)
    producer = await world.start()
    receipts = await producer.send_batch(
        "t", [b"x" * 300] * 4, queue=A1, unique_keys=["1", "2", "3", "4"]
    )
    assert [it.message_id for it in receipts] == ["1", "2", "3", "4"]
    assert [it.offset_id for it in receipts] == ["A", "B", "C", "D"]
    assert [it.queue_offset for it in receipts] == [40, 41, 40, 41]
    assert {it.queue for it in receipts} == {A1}
    codes = [command.code for _, command, _ in world.sent]
    assert codes == [RequestCode.SEND_BATCH_MESSAGE] * 2
    assert [len(batch.decode(command.body)) for _, command, _ in world.sent] == [2, 2]
    (lone,) = await producer.send_batch("t", [b"a"], unique_keys=["5"])
    assert (lone.message_id, lone.offset_id) == ("5", "M")
    # A broker that names one message only: its name is what there is.
    (_, second) = await producer.send_batch("t", [b"a", b"b"])
    assert second.offset_id == "M"


@on_loop
async def test_batch_whose_keys_or_topics_do_not_fit_is_refused() -> None:
    producer = await World().start()
    for keys in ([], ["1"], ["1", ""], ["1", "2", "3"]):
        with pytest.raises(UsageError, match="unique keys"):
            await producer.send_batch("t", [b"a", b"b"], unique_keys=keys)
    for topics in ("tu", "ut", "uu", "u"):
        with pytest.raises(UsageError, match="one topic"):
            await producer.send_batch("t", [Message(topic, b"a") for topic in topics])
    with pytest.raises(UsageError, match="at least one"):
        await producer.send_batch("t", [])


@on_loop
async def test_what_is_encoded_already_goes_to_its_queue() -> None:
    world = World("M")
    producer = await world.start()
    encoded = encode_one(Message("t", b"m"), "U", ProducerOptions())
    (receipt,) = await producer.send_encoded(encoded, queue=A1, timeout_s=2.0)
    assert (receipt.message_id, receipt.offset_id, receipt.queue) == ("U", "M", A1)
    assert world.places() == [("a:1", "1")]
    assert world.sent[0][2] == 2.0


@on_loop
async def test_answer_that_is_no_success_or_cannot_be_read_is_told() -> None:
    world = World()
    producer = await world.start()
    answers: list[Command] = []

    async def call(*_: object) -> Command:
        return answers.pop()

    producer._session.client = cast("Any", SimpleNamespace(call=call))
    answers.append(Command(ResponseCode.MESSAGE_ILLEGAL, remark="too long"))
    with pytest.raises(Refused, match="too long"):
        await producer.send("t", b"m")
    answers.append(Command(0, {"msgId": "M", "queueId": "x", "queueOffset": "1"}))
    with pytest.raises(OutcomeUnknown, match="cannot be read"):
        await producer.send("t", b"m")


@on_loop
async def test_request_says_what_the_message_is() -> None:
    world = World(template_topic="T", template_queues=7)
    producer = await world.start()
    await producer.send("t", b"m", tag="a", queue=A1, unique_key="U")
    await producer.send_one_way("t", b"m", queue=A1)
    asks = {"CORRELATION_ID": "1", "REPLY_TO_CLIENT": "c", "CLUSTER": "cl", "TTL": "1000"}
    request = stored(b"", asks)
    world.known = (A0, MessageQueue("r", "b", 3))
    await producer.reply(dataclasses.replace(request, broker_name="b"), b"yes")
    await producer.reply(dataclasses.replace(request, broker_name="z"), b"yes")
    ((_, sent, _), (replied, answer, _), (elsewhere, _, _)) = world.sent
    assert [sent.code, answer.code] == [
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    ]
    assert (replied, elsewhere) == ("b:1", "a:1")
    ext = sent.ext or {}
    shown = {name: ext[name] for name in "abcdefghjklm" if name in ext}
    expected = {
        "a": "g",
        "b": "t",
        "c": "T",
        "d": "7",
        "e": "1",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "j": "0",
        "k": "false",
    }
    assert shown.items() >= expected.items()
    assert "UNIQ_KEY\x01U" in ext["i"]
    ((address, quiet),) = world.told
    assert (address, quiet.code) == ("a:1", RequestCode.SEND_MESSAGE_V2)


# --- requests ------------------------------------------------------------------------------------


@on_loop
async def test_request_returns_the_answer_to_it_and_waits_for_no_other() -> None:
    world = World()
    world.answer = stored(b"yes", {"own": "1"})
    producer = await world.start()
    answer = await producer.request("t", b"m", queue=A1, timeout_s=2.5)
    assert (answer.body, answer.properties["own"]) == (b"yes", "1")
    assert world.asked == [("heartbeat", 0.0)]
    ((_, command, _),) = world.sent
    asked = properties.read((command.ext or {})["i"])
    assert (asked[properties.REPLY_TO_CLIENT], asked[properties.TTL]) == ("c", "2500")
    assert not world.replies._waiting
    # Without a route nobody is asked to answer.
    world.known, world.routes = (), {"t": Refused(ResponseCode.SYSTEM_ERROR, "broken")}
    with pytest.raises(Refused, match="broken"):
        await producer.request("t", b"m", timeout_s=2.5)
    assert (len(world.sent), len(world.asked)) == (1, 2)
    assert not world.replies._waiting


def test_request_without_an_answer_in_time_has_an_unknown_outcome() -> None:
    async def run() -> None:
        world = World()
        await world.producer.start()
        with pytest.raises(OutcomeUnknown, match=r"no answer from t in 0\.01 s"):
            await world.producer.request("t", b"m", timeout_s=0.01)
        assert len(world.sent) == 1
        assert not world.replies._waiting

    asyncio.run(run())


# --- submitted sends -----------------------------------------------------------------------------


@on_loop
async def test_flush_waits_for_what_was_submitted_and_raises_the_first_failure_once() -> None:
    world = World(BUSY, NEVER, "M", retries=0, in_flight_max=2, batch_bytes=0)
    producer = await world.start()
    futures = [await producer.submit("t", b"m") for _ in range(3)]
    with pytest.raises(Refused, match="busy"):
        await producer.flush()
    assert [type(it.exception()) for it in futures] == [Refused, Refused, type(None)]
    assert futures[2].result().offset_id == "M"
    await producer.flush()
    # What cannot be encoded takes no place among those under way.
    for _ in range(3):
        with pytest.raises(UsageError):
            _ = await producer.submit("t", b"")
    await producer.flush()


@on_loop
async def test_caller_who_gave_up_hears_nothing_and_flush_goes_on() -> None:
    world = World(BUSY, "M", retries=0, batch_bytes=0)
    producer = await world.start()
    for _ in range(2):
        (await producer.submit("t", b"m")).cancel()
    with pytest.raises(Refused):
        await producer.flush()
    assert len(world.sent) == 2
    await producer.flush()


@on_loop
async def test_failure_that_flush_told_is_not_told_again_by_the_loop() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    producer = await World(BUSY, retries=0).start()
    _ = await producer.submit("t", b"m")
    with pytest.raises(Refused):
        await producer.flush()
    gc.collect()
    assert told == []


@on_loop
async def test_producer_that_is_not_open_sends_nothing() -> None:
    world = World()
    producer = world.producer
    for _ in range(2):
        with pytest.raises(UsageError, match="not started"):
            await producer.send("t", b"m")
        with pytest.raises(UsageError, match="not started"):
            await producer.queues("t")
        with pytest.raises(UsageError, match="not started"):
            _ = await producer.submit("t", b"m")
        await producer.flush()
        await world.start()
        await producer.start()
        assert world.members == {"g"}
        await producer.close()
        await producer.close()
        assert world.members == set()
    assert (world.left, world.sent) == (["g", "g"], [])
    async with producer as same:
        assert same is producer
        assert world.members == {"g"}
    assert (world.members, world.left) == (set(), ["g"] * 3)


@pytest.mark.parametrize("has_begun", [False, True])
@on_loop
async def test_close_waits_for_what_was_submitted(*, has_begun: bool) -> None:
    world = World()
    producer = await world.start()
    futures = [await producer.submit("t", b"m") for _ in range(3)]
    if has_begun:
        await asyncio.sleep(0)
    await producer.close()
    assert [it.done() and it.result().offset_id for it in futures] == ["M"] * 3


def test_close_gives_up_what_no_broker_answers_in_time() -> None:
    async def run() -> None:
        world = World(timeout_s=0.01, in_flight_max=2)
        world.hangs = True
        await world.producer.start()
        futures = [await world.producer.submit("t", b"m") for _ in range(2)]
        await world.producer.close()
        assert [it.cancelled() for it in futures] == [True, True]
        # Their places are free.
        await world.producer.flush()

    asyncio.run(run())


# --- batches of submitted sends ------------------------------------------------------------------


def bodies_sent(world: World) -> list[list[bytes]]:
    """Return the bodies of each request."""
    return [
        [body for _, body, _ in batch.decode(it.body)]
        if it.code == RequestCode.SEND_BATCH_MESSAGE
        else [it.body]
        for _, it, _ in world.sent
    ]


@on_loop
async def test_submitted_in_one_turn_share_a_request_and_get_receipts_of_their_own() -> None:
    world = World("X,Y,Z")
    producer = await world.start()
    futures = [await producer.submit("t", f"{n}") for n in range(3)]
    assert world.sent == []
    receipts = [await future for future in futures]
    assert bodies_sent(world) == [[b"0", b"1", b"2"]]
    assert [it.offset_id for it in receipts] == ["X", "Y", "Z"]
    assert [it.queue_offset for it in receipts] == [40, 41, 42]
    _ = await (await producer.submit("t", b"alone"))
    assert world.sent[1][1].code == RequestCode.SEND_MESSAGE_V2


@on_loop
async def test_batches_end_where_they_are_full_and_are_spread_over_queues() -> None:
    world = World(batch_bytes=1000)
    producer = await world.start()
    for _ in range(7):
        _ = await producer.submit("t", b"x" * 300)
    _ = await producer.submit("t", b"x" * 2000)
    await producer.flush()
    assert [len(it) for it in bodies_sent(world)] == [2, 2, 2, 1, 1]
    assert world.places()[:3] == [("a:1", "0"), ("a:1", "1"), ("b:1", "0")]


@on_loop
async def test_what_no_batch_may_have_goes_alone_and_keeps_its_place() -> None:
    world = World()
    producer = await world.start()
    members = [
        Message("t", b"0"),
        Message("t", b"1"),
        Message("t", b"x" * 5000),
        Message("t", b"3", delay_level=2),
        Message("t", b"4"),
        Message("t", b"5"),
        Message("t", b"6", wait_store_ok=False),
        Message("t", b"7", wait_store_ok=False),
    ]
    for it in members:
        _ = await producer.submit(it, queue=A0)
    await producer.flush()
    sizes = [len(it) for it in bodies_sent(world)]
    assert sizes == [2, 1, 1, 2, 2]
    heads = [properties.read((it.ext or {})["i"]).get(properties.WAIT) for _, it, _ in world.sent]
    assert heads == [None, None, None, None, "false"]


@on_loop
async def test_one_request_is_in_flight_to_a_chosen_queue_whatever_is_tried_again() -> None:
    # The first try of the first message fails; nothing of its queue overtakes it meanwhile.
    world = World(Unreachable("away"), "M", "M")
    producer = await world.start()
    first = await producer.submit("t", b"0", order_key="k")
    await asyncio.sleep(0)
    for number in (1, 2, 3):
        _ = await producer.submit("t", f"{number}", order_key="k")
    await producer.flush()
    assert bodies_sent(world) == [[b"0"], [b"0"], [b"1", b"2", b"3"]]
    assert len(set(world.places())) == 1
    assert first.result().offset_id == "M"


@on_loop
async def test_batch_that_is_judged_by_one_message_is_taken_apart() -> None:
    world = World(NEVER, "M", NEVER, "N")
    producer = await world.start()
    futures = [await producer.submit("t", f"{n}", order_key="k") for n in range(3)]
    with pytest.raises(Refused, match="no"):
        await producer.flush()
    assert bodies_sent(world) == [[b"0", b"1", b"2"], [b"0"], [b"1"], [b"2"]]
    failed = [it.exception() is not None for it in futures]
    assert failed == [False, True, False]
    # A broker that knows no batches gets none any more.
    world.outcomes = [Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no batches")]
    for _ in range(2):
        futures = [await producer.submit("t", b"m") for _ in range(2)]
        await producer.flush()
        assert all(it.result().offset_id == "M" for it in futures)
    assert [len(it) for it in bodies_sent(world)[4:]] == [2, 1, 1, 1, 1]


@on_loop
async def test_failure_of_a_batch_is_that_of_each_message() -> None:
    world = World(OutcomeUnknown("no answer"), "M")
    producer = await world.start()
    futures = [await producer.submit("t", b"m", queue=A0) for _ in range(3)]
    with pytest.raises(OutcomeUnknown):
        await producer.flush()
    assert [type(it.exception()) for it in futures] == [OutcomeUnknown] * 3
    assert len(world.sent) == 1


@on_loop
async def test_what_waited_behind_others_for_its_whole_time_is_not_sent() -> None:
    world = World(batch_bytes=1, timeout_s=3.0)
    world.each_s = 2.0
    producer = await world.start()
    futures = [await producer.submit("t", b"m", order_key="k") for _ in range(4)]
    with pytest.raises(Unreachable, match="not sent in time"):
        await producer.flush()
    assert [it.exception() is None for it in futures] == [True, True, False, False]
    assert [timeout_s for *_, timeout_s in world.sent] == [3.0, 1.0]


@pytest.mark.parametrize("ended_by", ["flush", "close", "size", "slots"])
def test_lingering_batch_goes_out_when_it_is_asked_for(ended_by: str) -> None:
    async def run() -> None:
        world = World(batch_linger_s=3600.0, batch_bytes=1000, in_flight_max=4)
        producer = world.producer
        await producer.start()
        futures = [await producer.submit("t", b"m") for _ in range(3)]
        await asyncio.sleep(0.01)
        assert world.sent == []
        if ended_by == "flush":
            await producer.flush()
        elif ended_by == "close":
            await producer.close()
        elif ended_by == "size":
            futures.append(await producer.submit("t", b"m" * 900))
        else:
            for _ in range(2):
                _ = await producer.submit("t", b"m")
        async with asyncio.timeout(20):
            assert all([(await it).offset_id == "M" for it in futures[:3]])
        await producer.close()

    asyncio.run(run())


@on_loop
async def test_lingering_batch_goes_out_by_itself() -> None:
    producer = World(batch_linger_s=0.01).producer
    await producer.start()
    futures = [await producer.submit("t", b"m") for _ in range(3)]
    async with asyncio.timeout(20):
        assert [(await it).offset_id for it in futures] == ["M"] * 3
    await producer.close()


def test_close_cancels_what_waits_behind_a_batch_that_hangs() -> None:
    async def run() -> None:
        world = World(timeout_s=0.01, in_flight_max=8, batch_bytes=0)
        world.hangs = True
        await world.producer.start()
        futures = [await world.producer.submit("t", b"m", queue=A0) for _ in range(3)]
        await world.producer.close()
        assert [it.cancelled() for it in futures] == [True] * 3
        await world.producer.flush()
        assert len(world.sent) == 1

    asyncio.run(run())


@on_loop
async def test_linger_time_leaves_time_to_send() -> None:
    producer = World(batch_linger_s=3600.0, timeout_s=0.2).producer
    await producer.start()
    future = await producer.submit("t", b"m")
    async with asyncio.timeout(20):
        assert (await future).offset_id == "M"
    await producer.close()


@pytest.mark.parametrize("none", [0, -1])
def test_no_message_under_way_is_no_option(none: int) -> None:
    with pytest.raises(UsageError, match="must be 1 or more"):
        _ = ProducerOptions(in_flight_max=none)


@on_loop
async def test_flush_hurries_what_waited_for_the_queues_of_its_topic() -> None:
    world = World(batch_linger_s=3600.0)
    known, world.known = world.known, ()
    world.routes["t"] = route("a")
    await world.producer.start()
    futures = [await world.producer.submit("t", b"m", order_key="k") for _ in range(3)]

    def now_known(_topic: str) -> tuple[MessageQueue, ...]:
        return known if world.sent else ()

    world.book.publish_queues = now_known
    async with asyncio.timeout(20):
        await world.producer.flush()
    assert [it.result().offset_id for it in futures] == ["M"] * 3
    await world.producer.close()


@pytest.mark.parametrize(
    "bad",
    [
        Message("t", b"m", tag="\ud800"),
        Message("t", b"m", keys=("\ud800",)),
        Message("t", b"m", properties={"a": "\ud800"}),
        Message("t", b"m", flag=1 << 31),
        Message("t", b"m", flag=cast("int", "1")),
    ],
    ids=["tag", "key", "property", "flag", "no number"],
)
@on_loop
async def test_message_that_no_frame_can_have_fails_alone(bad: Message) -> None:
    world = World()
    await world.producer.start()
    before = await world.producer.submit("t", b"m")
    with pytest.raises(UsageError):
        _ = await world.producer.submit(bad)
    with pytest.raises(UsageError):
        await world.producer.send(bad)
    with pytest.raises(UsageError):
        await world.producer.send_batch("t", [bad])
    await world.producer.flush()
    assert before.result().offset_id == "M"
    await world.producer.close()


@on_loop
async def test_error_that_nobody_expects_is_told_and_those_behind_it_go_on() -> None:
    world = World(ValueError("?"))
    world.known = ()
    world.routes["t"] = route("a")
    await world.producer.start()
    futures = [await world.producer.submit("t", b"m", order_key="k") for _ in range(2)]
    async with asyncio.timeout(20):
        with pytest.raises(OutcomeUnknown, match="ValueError"):
            await world.producer.flush()
    assert futures[1].result().offset_id == "M"
    await world.producer.close()


# --- messages in hand ----------------------------------------------------------------------------


def held(sizes: Sequence[tuple[int, int]]) -> ProcessQueue:
    queue = ProcessQueue(A0, 0)
    queue.add(
        [
            cast("StoredMessage", SimpleNamespace(queue_offset=offset, body=b"x" * size))
            for offset, size in sizes
        ]
    )
    return queue


def test_message_that_comes_again_is_not_kept_twice() -> None:
    queue = held([(3, 1), (4, 1)])
    again = cast("StoredMessage", SimpleNamespace(queue_offset=4, body=b"x"))
    assert queue.add([again]) == []
    assert (queue.count, queue.size, queue.bounds) == (2, 2, (3, 4))


def test_fetching_pauses_beyond_each_limit() -> None:
    options = ConsumerOptions(queue_messages_max=2, queue_bytes_max=10, queue_span_max=5)
    for sizes, in_any_order, in_order in (
        ([(0, 1), (1, 1)], False, False),
        ([(0, 1), (1, 1), (2, 1)], True, True),
        ([(0, 10)], False, False),
        ([(0, 11)], True, True),
        ([(3, 1), (8, 1)], False, False),
        ([(3, 1), (9, 1)], True, False),
    ):
        queue = held(sizes)
        assert queue.is_full(options, ordered=False) is in_any_order
        assert queue.is_full(options, ordered=True) is in_order
