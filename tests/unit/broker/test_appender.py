"""What the appender does with each message: host bits, delays, copies, and what it waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.broker.messages.appender import Appender, with_hosts
from roquet.broker.messages.put_hooks import asks_for_timer, delay_level, put_hooks
from roquet.broker.messages.schedule import LEVELS_MAX, DelayLevels
from roquet.broker.state import BrokerState
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.messages import sys_flag
from roquet.store.results import BatchDraft, BatchResult, Draft, PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

V4, V6 = bytes(8), bytes(20)
OK, SLAVE = PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT
FULL = PutStatus.SERVICE_NOT_AVAILABLE
ILLEGAL = PutStatus.MESSAGE_ILLEGAL


class Parts:
    """Store, log, copies and timers; notes what each is asked."""

    def __init__(self, status: PutStatus = OK) -> None:
        self.status = status
        self.asked: list[tuple[Any, ...]] = []
        self.flushed = 0
        self.copied_to = 0

    # The store, and the log without what is around it.

    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        self.asked.append(("put", draft.topic, wait))
        return PutResult(self.status, 100, 10, 0, 1)

    async def put_batch(self, batch: BatchDraft) -> BatchResult:
        self.asked.append(("batch", batch.sys_flag))
        return BatchResult(self.status, [100, 110], 20, 0)

    def append(self, drafts: Sequence[Draft]) -> list[PutResult]:
        self.asked.append(("append", *(it.topic for it in drafts)))
        return [PutResult(OK, 100 * at, 10, at, 1) for at in range(len(drafts))]

    def is_settled(self, end_offset: int) -> bool:
        return end_offset <= self.flushed

    async def settled(self, result: PutResult, wait: bool) -> PutResult:
        self.asked.append(("settled", wait))
        return result._replace(status=self.status)

    # Slaves.

    async def copied(self, end: int) -> tuple[PutStatus, str]:
        self.asked.append(("copied", end))
        return SLAVE, "no slave"

    def has(self, end: int) -> bool:
        return end <= self.copied_to


class Wheel:
    """Refuses what is for the timer wheel."""

    def divert(self, draft: Draft) -> PutResult | None:
        draft.topic = "wheel"
        return PutResult(PutStatus.WHEEL_TIMER_MSG_ILLEGAL) if draft.body == b"bad" else None


def draft(topic: str = "t", body: bytes = b"m", flag: int = 0, **properties: str) -> Draft:
    return Draft(
        topic=topic,
        queue_id=0,
        body=body,
        properties=properties,
        sys_flag=flag,
        born_timestamp=1,
        born_host=V4,
        store_host=V6,
    )


def batch(**changes: Any) -> BatchDraft:
    fields: dict[str, Any] = {
        "topic": "t",
        "queue_id": 0,
        "elements": [(0, b"a", b""), (0, b"b", b"")],
        "sys_flag": sys_flag.BORN_HOST_V6,
        "born_timestamp": 1,
        "born_host": V4,
        "store_host": V6,
    }
    return BatchDraft(**(fields | changes))


def appender(
    parts: Parts,
    *,
    copies: bool = True,
    log: bool = True,
    timers: bool = True,
    state: BrokerState | None = None,
) -> Appender:
    wheel = Wheel() if timers else None
    return Appender(
        parts,
        put_hooks(state or BrokerState(), DelayLevels(), timers=wheel),
        parts if copies else None,
        log=cast("Any", parts) if log else None,
    )


@pytest.mark.parametrize(
    ("born", "store", "bits"),
    [
        (V4, V4, 0),
        (V6, V4, sys_flag.BORN_HOST_V6),
        (V4, V6, sys_flag.STORE_HOST_V6),
        (V6, V6, sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6),
    ],
)
def test_flag_says_which_hosts_are_of_ipv6_whatever_the_sender_says(
    born: bytes, store: bytes, bits: int
) -> None:
    for said in (0, sys_flag.BORN_HOST_V6, sys_flag.STORE_HOST_V6, 0x30):
        assert with_hosts(said | sys_flag.COMPRESSED, born, store) == bits | sys_flag.COMPRESSED


def test_one_message_waits_for_its_copies_unless_it_says_no() -> None:
    async def run() -> None:
        parts = Parts()
        it = appender(parts)
        message = draft(flag=sys_flag.BORN_HOST_V6)
        result = await it.append(message, wait=True)
        assert (result.status, result.why) == (SLAVE, "no slave")
        assert message.sys_flag == sys_flag.STORE_HOST_V6
        assert parts.asked == [("put", "t", True), ("copied", 110)]
        assert (await it.append(draft(WAIT="false"))).status is OK
        assert (await it.append(draft(WAIT="true"))).status is SLAVE
        assert (await appender(parts, copies=False).append(draft())).status is OK
        parts.status = PutStatus.FLUSH_DISK_TIMEOUT
        assert (await it.append(draft())).status is PutStatus.FLUSH_DISK_TIMEOUT

    asyncio.run(run())


def test_batch_waits_for_the_copy_of_its_end_unless_it_says_no() -> None:
    async def run() -> None:
        parts = Parts()
        it = appender(parts)
        result = await it.append_batch(batch())
        assert (result.status, result.why) == (SLAVE, "no slave")
        # From the first message on so many bytes.
        assert parts.asked == [("batch", sys_flag.STORE_HOST_V6), ("copied", 120)]
        assert (await it.append_batch(batch(wait=False))).status is OK
        assert (await appender(parts, copies=False).append_batch(batch())).status is OK
        parts.status = FULL
        assert (await it.append_batch(batch())).status is FULL

    asyncio.run(run())


def test_message_of_the_log_is_settled_when_it_is_flushed_and_copied() -> None:
    parts = Parts()
    result = PutResult(OK, 100, 10, 0, 1)
    it = appender(parts)
    for flushed, copied, settled in (
        (109, 110, False),
        (110, 109, False),
        (110, 110, True),
        (111, 111, True),
    ):
        parts.flushed, parts.copied_to = flushed, copied
        assert it.is_settled(result) is settled
    parts.flushed, parts.copied_to = 110, 0
    assert appender(parts, copies=False).is_settled(result)
    parts.flushed, parts.copied_to = 0, 110
    assert appender(parts, log=False).is_settled(result)
    parts.copied_to = 0
    assert it.is_settled(result._replace(status=FULL)), "what is not stored waits for nothing"


def test_message_of_the_log_waits_for_its_flush_then_for_its_copies() -> None:
    async def run() -> None:
        parts = Parts()
        it = appender(parts)
        result = PutResult(OK, 100, 10, 0, 1)
        assert (await it.settled(draft(), result)).status is SLAVE
        assert (await it.settled(draft(WAIT="false"), result)).status is OK
        assert parts.asked == [("settled", True), ("copied", 110), ("settled", False)]
        parts.status = PutStatus.FLUSH_DISK_TIMEOUT
        assert (await it.settled(draft(), result)).status is PutStatus.FLUSH_DISK_TIMEOUT

    asyncio.run(run())


def test_messages_that_the_broker_moves_keep_their_order_and_delays_and_wait_for_nothing() -> None:
    async def run() -> None:
        moved = [draft("a", DELAY="3"), draft("a/b"), draft("b", TIMER_DELAY_SEC="9")]
        parts = Parts()
        results = await appender(parts).append_as_is(moved)
        assert [it.status for it in results] == [OK, PutStatus.MESSAGE_ILLEGAL, OK]
        assert [it.physical_offset for it in results][::2] == [0, 100]
        assert parts.asked == [("append", "a", "b")]
        parts.asked.clear()
        results = await appender(parts, log=False).append_as_is(moved)
        assert [it.status for it in results] == [OK, PutStatus.MESSAGE_ILLEGAL, OK]
        assert parts.asked == [("put", "a", False), ("put", "b", False)]
        parts.asked.clear()
        results = await appender(parts).append_as_is([draft("a/b")])
        assert ([it.status for it in results], parts.asked) == ([PutStatus.MESSAGE_ILLEGAL], [])

    asyncio.run(run())


@pytest.mark.parametrize(
    ("topic", "is_storable"),
    [
        ("a", True),
        ("%RETRY%g", True),
        ("%RETRY%g+a", True),
        ("%RETRY%g+a/b", False),
        ("g+a", False),
        ("a/b", False),
    ],
)
def test_record_has_a_legal_topic_or_one_of_pops_retries(topic: str, *, is_storable: bool) -> None:
    for _ in range(2):
        assert (appender(Parts()).made_ready(draft(topic)) is None) is is_storable


def test_slave_appends_nothing() -> None:
    parts = Parts()
    it = appender(parts, state=BrokerState(is_slave=True))
    one = asyncio.run(it.append(draft()))
    many = asyncio.run(it.append_batch(batch()))
    for result in (one, many):
        assert (result.status, result.why) == (FULL, "this broker is a slave")
    assert (many.physical_offsets, parts.asked) == ([], [])


@pytest.mark.parametrize("copied_to", [0, 110, 1000])
def test_messages_go_together_and_each_waits_for_what_it_asked(copied_to: int) -> None:
    async def run() -> None:
        parts = Parts()
        parts.flushed, parts.copied_to = 1000, copied_to
        messages = [draft("a"), draft("a/b"), draft("c", WAIT="false"), draft("d", flag=4)]
        it = appender(parts)
        results = await it.append_all(messages)
        assert parts.asked[0] == ("append", "a", "c", "d")
        assert [it.physical_offset for it in results if it.status is not ILLEGAL] == [0, 100, 200]
        settled = [end <= copied_to for end in (10, 110, 210)]
        status = [OK if done else SLAVE for done in settled]
        status[1] = OK
        assert [it.status for it in results] == [status[0], ILLEGAL, *status[1:]]
        waited = [row for row in parts.asked if row[0] == "settled"]
        assert waited == [
            ("settled", wait)
            for wait, done in zip((True, False, True), settled, strict=True)
            if not done
        ]
        parts.asked.clear()
        results = await it.append_all([draft("a")], wait=False)
        assert [row[1] for row in parts.asked if row[0] == "settled"] == [False] * (copied_to < 10)

    asyncio.run(run())


def test_messages_of_which_none_is_storable_are_not_appended() -> None:
    parts = Parts()
    results = asyncio.run(appender(parts).append_all([draft("a/b"), draft("c/d")]))
    assert ([it.status for it in results], parts.asked) == ([ILLEGAL] * 2, [])
    assert asyncio.run(appender(parts).append_all([])) == []


def test_without_a_log_messages_are_appended_one_by_one() -> None:
    parts = Parts()
    it = appender(parts, log=False, copies=False)
    assert it.log is None
    results = asyncio.run(it.append_all([draft("a"), draft("b/c"), draft("d")], wait=True))
    assert [it.status for it in results] == [OK, ILLEGAL, OK]
    assert parts.asked == [("put", "a", True), ("put", "d", True)]
    assert appender(parts).log is cast("Any", parts)


@pytest.mark.parametrize(
    ("flag", "may_wait"),
    [
        (sys_flag.TRANSACTION_NONE, True),
        (sys_flag.TRANSACTION_PREPARED, False),
        (sys_flag.TRANSACTION_COMMIT, True),
        (sys_flag.TRANSACTION_ROLLBACK, False),
    ],
)
def test_message_that_is_no_half_may_have_a_delay(flag: int, *, may_wait: bool) -> None:
    it = appender(Parts())
    delayed = draft(flag=flag, DELAY="2")
    assert it.made_ready(delayed) is None
    assert delayed.topic == (names.SCHEDULE_TOPIC if may_wait else "t")
    timed = draft(flag=flag, TIMER_DELAY_SEC="2")
    assert it.made_ready(timed) is None
    assert timed.topic == ("wheel" if may_wait else "t")
    assert timed.sys_flag == flag | sys_flag.STORE_HOST_V6
    refused = it.made_ready(draft(flag=flag, body=b"bad", TIMER_DELAY_SEC="2"))
    assert (refused is not None) is may_wait
    without = appender(Parts(), timers=False).made_ready(draft(flag=flag, TIMER_DELAY_SEC="2"))
    assert (without is not None) is may_wait


@pytest.mark.parametrize(
    ("text", "level"),
    [("1", 1), ("0", 0), ("", 0), ("-1", 0), ("x", 0), ("\u0661", 0), ("9" * 9, 999_999_999)],
)
def test_delay_level_is_a_number_of_at_most_nine_digits(text: str, level: int) -> None:
    assert delay_level({"DELAY": text}) == level
    assert delay_level({"DELAY": "1" + "0" * 9}) == 0
    assert delay_level({}) == 0


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_message_with_a_timer_property_is_for_the_wheel_unless_it_has_a_level(name: str) -> None:
    assert asks_for_timer({name: "1"})
    assert asks_for_timer({name: "1", "DELAY": "0"})
    assert not asks_for_timer({"TAGS": "t"})
    for level in (props.DELAY, props.TIMER_DELAY_LEVEL):
        assert not asks_for_timer({level: "0"})
    properties = {name: "1", "DELAY": "1", "TAGS": "t"}
    assert not asks_for_timer(properties)
    assert properties == {"DELAY": "1", "TAGS": "t"}


# --- delay levels --------------------------------------------------------------------------------


def test_levels_are_as_many_as_the_limit_with_each_unit() -> None:
    levels = DelayLevels("1s 2m 3h 4d " + "5s " * (LEVELS_MAX - 4))
    assert levels.highest == LEVELS_MAX
    found = [levels.delay_ms(level) for level in (1, 2, 3, 4, LEVELS_MAX)]
    assert found == [1_000, 120_000, 10_800_000, 345_600_000, 5_000]
    assert DelayLevels("999999999s").delay_ms(1) == 999_999_999_000


@pytest.mark.parametrize(
    ("text", "queue_id"),
    [("1", 0), ("2", 1), ("3", 1), ("2147483647", 1), ("0", None), ("-2147483647", None)],
)
def test_level_is_a_number_of_32_bits_and_the_highest_at_most(
    text: str, queue_id: int | None
) -> None:
    message = draft(DELAY=text)
    DelayLevels("1s 2s").divert(message)
    if queue_id is None:
        assert (message.topic, message.properties) == ("t", {"DELAY": text})
    else:
        assert (message.topic, message.queue_id) == (names.SCHEDULE_TOPIC, queue_id)
        assert message.properties["DELAY"] == str(queue_id + 1)
