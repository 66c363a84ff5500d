"""How long answers took and how large messages are, as RocketMQ 5 tells it: names, labels, classes.

Told of what the processors answer. What the native fast path answers is counted elsewhere, without
looking at a clock for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.protocol.command import Command
    from roquet.service.metrics import Metrics

RPC_MS = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
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
    """Hears of each answer of a processor."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        """Show the distributions."""
        self._clock = clock
        labels = ("protocol_type", "request_code", "response_code", "is_long_polling", "result")
        self._rpc = metrics.distribution(
            "rpc_latency_milliseconds", "From a request's arrival to its answer", labels, RPC_MS
        )
        self._topics = metrics.distribution(
            "topic_create_execution_time_milliseconds",
            "How long it took to create or change a topic",
            ("invocation_status",),
            CREATE_MS,
        )
        self._groups = metrics.distribution(
            "consumer_group_create_execution_time_milliseconds",
            "How long it took to create or change a consumer group",
            ("invocation_status",),
            CREATE_MS,
        )

    def answered(self, command: Command, answer: Command, received_ms: int, held: bool) -> None:
        """Note an answer; `held` says that it came later than the handler returned."""
        took_ms = float(max(0, self._clock.now_ms() - received_ms))
        code = command.code
        name = _REQUESTS.get(code, _OTHER)
        said = _RESPONSES.get(answer.code, _OTHER)
        polled = "true" if held and code in _PULLS else "false"
        result = "oneway" if command.is_one_way else "success"
        self._rpc.observe(("remoting", name, said, polled, result), took_ms)
        status = ("success" if answer.code == ResponseCode.SUCCESS else "failure",)
        if code in _OF_TOPICS:
            self._topics.observe(status, took_ms)
        elif code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
            self._groups.observe(status, took_ms)
