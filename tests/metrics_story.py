"""Traffic that fills every family of metrics, sent to a broker of either make."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from admin_bodies import heartbeat
from pop_harness import ack_command, pop_command, popped
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.records import read_records
from roquet.testing.cluster import pull_command, send_command
from transaction_harness import end_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.metrics_core import Metric

    from roquet.remoting.blocking import BlockingConnection

READERS = "readers"
POPPERS = "poppers"
PLAIN, POPPED, TIMED, HALVES = "MetricsPlain", "MetricsPopped", "MetricsTimed", "MetricsHalves"
HALF, PREPARED = "TRAN_MSG", {"f": "4"}
COMMIT, ROLLBACK = 8, 12
ROUNDS = 400
"""Times a state of the broker is looked at, a tenth of a second apart, before a test fails."""


def page(port: int) -> dict[str, Metric]:
    """Return the families of a Prometheus page by their names."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {one.name: one for one in text_string_to_metric_families(text)}


def tell(connection: BlockingConnection, broker: str) -> None:
    """Send, read, send back, pop, time, and transact."""

    def ask(command: Command, *codes: int) -> Command:
        answer = connection.call(command, 20.0)
        assert answer.code in (codes or (ResponseCode.SUCCESS,)), (command, answer)
        return answer

    for topic in (PLAIN, POPPED, TIMED, HALVES):
        _make_topic(ask, topic)
    for group in (READERS, POPPERS):
        _make_group(ask, group)
    ask(Command(RequestCode.HEART_BEAT, {}, heartbeat(READERS, PLAIN)))
    for number in range(6):
        ask(send_command(PLAIN, b"m" * (600 * number + 1), 0, _named(f"plain-{number}")))
    first = read_records(_pulled(ask, PLAIN, 0).body)
    _pulled(ask, PLAIN, 3)
    where = {"consumerGroup": READERS, "topic": PLAIN, "queueId": "0", "commitOffset": "2"}
    ask(Command(RequestCode.UPDATE_CONSUMER_OFFSET, where))
    back = {"group": READERS, "originTopic": PLAIN, "originMsgId": "x", "unitMode": "false"}
    for level in ("1", "-1"):
        given = {**back, "offset": str(first[0].physical_offset), "delayLevel": level}
        ask(Command(RequestCode.CONSUMER_SEND_MSG_BACK, {**given, "maxReconsumeTimes": "3"}))
    _pop(ask, broker)
    ask(send_command(TIMED, b"soon", 0, _named("soon", TIMER_DELAY_SEC="2")))
    ask(send_command(TIMED, b"late", 0, _named("late", TIMER_DELAY_SEC="3600")))
    ask(send_command(TIMED, b"level", 0, _named("level", DELAY="1")))
    _pulled(ask, TIMED, 0, rounds=ROUNDS)
    for state in (COMMIT, ROLLBACK, None):
        text = _named(f"half-{state}", TRAN_MSG="true", PGROUP="G")
        half = ask(send_command(HALVES, b"half", 0, text, f="4", a="G")).ext or {}
        if state is not None:
            log_offset, offset = int(half["msgId"][16:], 16), int(half["queueOffset"])
            ask(end_command(state, log_offset, offset, producerGroup="G"))
    ask(Command(9999), ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


def _pop(ask: Callable[..., Command], broker: str) -> None:
    """Pop two messages, acknowledge one and have the other revived."""
    for number in range(2):
        ask(send_command(POPPED, b"p%d" % number, 0, _named(f"popped-{number}")))
    handles = []
    for _ in range(ROUNDS):
        short = {"invisibleTime": "1000", "consumerGroup": POPPERS, "bornTime": str(_now_ms())}
        answer = ask(pop_command(POPPED, **short), *POP_CODES)
        if answer.code == ResponseCode.SUCCESS:
            handles += popped(answer, broker).handles
        if len(handles) >= 2:
            break
        time.sleep(0.1)
    ask(ack_command(handles[0], POPPED, consumerGroup=POPPERS))


POP_CODES = (
    ResponseCode.SUCCESS,
    ResponseCode.POLLING_TIMEOUT,
    ResponseCode.PULL_NOT_FOUND,
)


def _pulled(ask: Callable[..., Command], topic: str, at: int, rounds: int = ROUNDS) -> Command:
    for _ in range(rounds):
        answer = ask(
            pull_command(topic, at, consumerGroup=READERS),
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            # More is asked for than the dispatcher has filed yet.
            ResponseCode.PULL_OFFSET_MOVED,
        )
        if answer.code == ResponseCode.SUCCESS:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"no message of {topic} at {at}")


def _named(key: str, **more: str) -> str:
    return props.write({props.UNIQ_KEY: key, **more})


def _make_topic(ask: Callable[..., Command], name: str) -> None:
    made = {"topic": name, "defaultTopic": "TBW102", "perm": "6", "topicSysFlag": "0"}
    made |= {"readQueueNums": "1", "writeQueueNums": "1", "order": "false"}
    made |= {"topicFilterType": "SINGLE_TAG"}
    if name == TIMED:
        made |= {"attributes": "+message.type=DELAY"}
    ask(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, made))


def _make_group(ask: Callable[..., Command], name: str) -> None:
    body = json.dumps({"groupName": name, "consumeEnable": True, "retryQueueNums": 1})
    ask(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body.encode()))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
