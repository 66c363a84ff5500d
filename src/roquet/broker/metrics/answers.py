"""How long answers took and how large messages are, as RocketMQ 5 tells it: names, labels, classes.

Handlers tell of each of their answers, the native fast path of many together: it counts them
by the same classes.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.names import is_system_topic
from roquet.remoting.told import CLASSES_MS

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.protocol.command import Command
    from roquet.remoting.told import AnsweredHere
    from roquet.service.metrics import Metrics

CREATE_MS = (10.0, 100.0, 1000.0, 3000.0, 5000.0)

_REQUESTS = {int(code): code.name.lower() for code in RequestCode}
_RESPONSES = {int(code): code.name.lower() for code in ResponseCode}
_OTHER = "other"
"""What a code is called that nobody knows: peers choose codes, and each would be a row."""
_PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
_OF_TOPICS = frozenset(
    {RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST}
)


class Answers:
    """Hears of every answer."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        """Show the distributions."""
        self._clock = clock
        labels = ("protocol_type", "request_code", "response_code", "is_long_polling", "result")
        self._rpc = metrics.distribution(
            "rpc_latency_milliseconds", "From a request's arrival to its answer", labels, CLASSES_MS
        )
        topics = metrics.distribution(
            "topic_create_execution_time_milliseconds",
            "How long it took to create or change a topic",
            ("invocation_status", "is_system"),
            CREATE_MS,
        )
        groups = metrics.distribution(
            "consumer_group_create_execution_time_milliseconds",
            "How long it took to create or change a consumer group",
            ("invocation_status",),
            CREATE_MS,
        )

        self._creates = {int(code): topics for code in _OF_TOPICS}
        self._creates[int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)] = groups

    def answered(self, command: Command, answer: Command, received_ms: int, held: bool) -> None:
        """Note an answer; `held` says that it came later than the handler returned."""
        took_ms = float(max(0, self._clock.now_ms() - received_ms))
        code = command.code
        self._rpc.observe(_labels(code, answer.code, held, command.is_one_way), took_ms)
        creates = self._creates.get(code)
        if creates is not None:
            status = "success" if answer.code == ResponseCode.SUCCESS else "failure"
            if code in _OF_TOPICS:
                topic = (command.ext or {}).get("topic", "")
                creates.observe((status, "true" if is_system_topic(topic) else "false"), took_ms)
            else:
                creates.observe((status,), took_ms)

    def called(self, front: str, request: str, code: int, took_ms: float) -> None:
        """Note a call of another front, by the request's name in small letters."""
        labels = (front, request, _RESPONSES.get(code, _OTHER), "false", "success")
        self._rpc.observe(labels, took_ms)

    def answered_many(self, answers: AnsweredHere, front: str) -> None:
        """Note answers of one kind that the fast path gave for a front."""
        kind = (answers.request_code, answers.response_code, answers.held, answers.one_way)
        labels = _labels(*kind, front)
        self._rpc.add(labels, answers.counts, answers.took_us / 1000)


@functools.lru_cache(maxsize=4096)
def _labels(
    request: int, response: int, polled: bool, one_way: bool, front: str = "remoting"
) -> tuple[str, ...]:
    return (
        front,
        _REQUESTS.get(request, _OTHER),
        _RESPONSES.get(response, _OTHER),
        "true" if polled and request in _PULLS else "false",
        "oneway" if one_way else "success",
    )
