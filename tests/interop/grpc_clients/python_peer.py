"""The official Python client of gRPC, steered by lines of JSON, in an environment of its own.

Each line of standard input is a request, each line of standard output its answer.
Shape of a request: {"do": name, fields}; of an answer: {"result": …} or {"error": text}.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
import threading
import time
import traceback
from typing import Any

# Of the environment that this runs in, which is not the one of the tests.
rocketmq: Any = importlib.import_module("rocketmq")
filters: Any = importlib.import_module("rocketmq.v5.model.filter_expression")

Shown = dict[str, Any]
TLS = "PEER_TLS" in os.environ
"""Whether the endpoint is spoken to over TLS; gRPC's own variable names whom to trust."""
VERDICTS = {
    "commit": rocketmq.TransactionResolution.COMMIT,
    "rollback": rocketmq.TransactionResolution.ROLLBACK,
}


def shown(message: Any) -> Shown:
    """Return what a consumer sees of a message."""
    return {
        "id": message.message_id,
        "topic": message.topic,
        "body": base64.b64encode(message.body).decode(),
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": dict(message.properties),
        "group": message.message_group,
        "attempt": message.delivery_attempt,
        "priority": message.priority,
        "light": message.lite_topic,
        "at_ms": int(time.time() * 1000),
        "corrupted": message.corrupted,
    }


def made(topic: str, one: dict[str, Any]) -> Any:
    """Make a message of a request's fields."""
    message = rocketmq.Message()
    message.topic = topic
    message.body = base64.b64decode(one["body"])
    if "tag" in one:
        message.tag = one["tag"]
    if "keys" in one:
        message.keys = one["keys"]
    if "group" in one:
        message.message_group = one["group"]
    if "due_ms" in one:
        # This client counts in seconds.
        message.delivery_timestamp = one["due_ms"] // 1000
    if "light" in one:
        message.lite_topic = one["light"]
    if "priority" in one:
        message.priority = one["priority"]
    for name, value in one.get("properties", {}).items():
        message.add_property(name, value)
    return message


class Checker(rocketmq.TransactionChecker):  # type: ignore[misc]
    """Answers what the broker asks about half messages."""

    def __init__(self, verdict: str) -> None:
        self._verdict = verdict
        self.asked: list[str] = []

    def check(self, message: Any) -> Any:
        self.asked.append(message.message_id)
        return VERDICTS[self._verdict]


class Listener(rocketmq.MessageListener):  # type: ignore[misc]
    """Notes what comes; refuses one body once or always, and takes its time for the first."""

    def __init__(self, refused: str | None, *, always: bool, slow_s: int) -> None:
        self.came: list[Shown] = []
        self.done: list[str] = []
        self._refused = None if refused is None else base64.b64decode(refused)
        self._always = always
        self._slow_s = slow_s
        self._lock = threading.Lock()

    def consume(self, message: Any) -> Any:
        with self._lock:
            self.came.append(shown(message))
            if self._refused is not None and message.body == self._refused:
                if not self._always:
                    self._refused = None
                return rocketmq.ConsumeResult.FAILURE
            slow_s, self._slow_s = self._slow_s, 0
        time.sleep(slow_s)
        self.done.append(message.message_id)
        return rocketmq.ConsumeResult.SUCCESS


class Peer:
    """The clients of one process."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._producers: dict[tuple[str, str | None], tuple[Any, Checker | None]] = {}
        self._consumers: dict[str, Any] = {}
        self._received: dict[str, Any] = {}
        self._lights: dict[str, tuple[Any, Listener]] = {}

    def _configuration(self) -> Any:
        keys = os.environ.get("PEER_ACCESS_KEY", ""), os.environ.get("PEER_SECRET_KEY", "")
        return rocketmq.ClientConfiguration(
            self._endpoint, rocketmq.Credentials(*keys), request_timeout=10
        )

    def _producer(self, topic: str, verdict: str | None = None) -> tuple[Any, Checker | None]:
        if (topic, verdict) not in self._producers:
            checker = None if verdict is None else Checker(verdict)
            producer = rocketmq.Producer(self._configuration(), [topic], checker, tls_enable=TLS)
            producer.startup()
            self._producers[topic, verdict] = producer, checker
        return self._producers[topic, verdict]

    def send(self, topic: str, messages: list[dict[str, Any]]) -> list[Shown]:
        """Send one after the other; return id, recall handle, or the error of each."""
        producer, _ = self._producer(topic)
        answers: list[Shown] = []
        for one in messages:
            try:
                receipt = producer.send(made(topic, one))
            except Exception as error:  # noqa: BLE001  (the test is told)
                answers.append({"error": f"{type(error).__name__}: {error}"})
                continue
            answers.append({"id": receipt.message_id, "recall": receipt.recall_handle})
        return answers

    def transaction(self, topic: str, message: dict[str, Any], end: str, check: str) -> Shown:
        """Send a half message and end it (commit, rollback, none); `check` answers checks."""
        producer, _ = self._producer(topic, check)
        transaction = producer.begin_transaction()
        receipt = producer.send(made(topic, message), transaction)
        if end == "commit":
            transaction.commit()
        elif end == "rollback":
            transaction.rollback()
        return {"id": receipt.message_id}

    def checked(self, topic: str, check: str) -> list[str]:
        """Return the ids of half messages that the broker asked about."""
        checker = self._producer(topic, check)[1]
        return [] if checker is None else checker.asked

    def recall(self, topic: str, handle: str) -> str:
        """Recall a message; return its id."""
        producer, _ = self._producer(topic)
        return str(producer.recall_message(topic, handle))

    def open(
        self, topic: str, group: str, expression: str = "*", kind: str = "TAG", wait_s: int = 5
    ) -> None:
        """Start a simple consumer."""
        rule = rocketmq.FilterExpression(expression, getattr(filters.FilterType, kind))
        consumer = rocketmq.SimpleConsumer(
            self._configuration(), group, {topic: rule}, wait_s, tls_enable=TLS
        )
        consumer.startup()
        self._consumers[group] = consumer

    def receive(self, group: str, most: int, invisible_s: int) -> list[Shown]:
        """Receive once; messages are named by their id until they are settled."""
        found: list[Shown] = []
        for message in self._consumers[group].receive(most, invisible_s) or []:
            self._received[message.message_id] = message
            found.append(shown(message))
        return found

    def ack(self, group: str, message: str) -> None:
        """Acknowledge a message by its last receipt handle."""
        self._consumers[group].ack(self._received[message])

    def change(self, group: str, message: str, invisible_s: int) -> None:
        """Change for how long a message stays invisible."""
        self._consumers[group].change_invisible_duration(self._received[message], invisible_s)

    def close(self, group: str) -> None:
        """Stop a simple consumer."""
        self._consumers.pop(group).shutdown()

    def push(
        self,
        topic: str,
        group: str,
        *,
        count: int,
        timeout_s: int,
        linger_s: int = 0,
        fail_once: str | None = None,
        fail_always: str | None = None,
        slow_s: int = 0,
    ) -> list[Shown]:
        """Consume until `count` came, and `linger_s` longer; the first takes `slow_s`."""
        always = fail_always is not None
        listener = Listener(fail_always or fail_once, always=always, slow_s=slow_s)
        rule = rocketmq.FilterExpression("*")
        consumer = rocketmq.PushConsumer(
            self._configuration(), group, listener, {topic: rule}, tls_enable=TLS
        )
        consumer.startup()
        end = time.monotonic() + timeout_s
        while len(listener.came) < count and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(linger_s)
        consumer.shutdown()
        return listener.came

    def light_open(
        self, name: str, topic: str, group: str, lights: list[str], fail_once: str | None = None
    ) -> None:
        """Start a push consumer of light topics under a name, and subscribe to some."""
        listener = Listener(fail_once, always=False, slow_s=0)
        consumer = rocketmq.LitePushConsumer(
            self._configuration(), group, topic, listener, tls_enable=TLS
        )
        consumer.startup()
        self._lights[name] = consumer, listener
        for light in lights:
            self.light_subscribe(name, light)

    def light_subscribe(self, name: str, light: str) -> None:
        """Add a light topic to the subscription."""
        # Settings come by a stream of their own: before them there is no quota.
        end = time.monotonic() + 20
        while True:
            try:
                self._lights[name][0].subscribe_lite(light)
            except Exception:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
            else:
                return

    def light_unsubscribe(self, name: str, light: str) -> None:
        """Take a light topic out of the subscription."""
        self._lights[name][0].unsubscribe_lite(light)

    def light_came(self, name: str, count: int, timeout_s: int) -> list[Shown]:
        """Return what came, as soon as there are so many."""
        _, listener = self._lights[name]
        end = time.monotonic() + timeout_s
        while len(listener.came) < count and time.monotonic() < end:
            time.sleep(0.05)
        return listener.came

    def light_close(self, name: str) -> None:
        """Stop such a consumer."""
        self._lights.pop(name)[0].shutdown()

    def end(self) -> None:
        """Stop all clients."""
        for consumer in self._consumers.values():
            consumer.shutdown()
        for producer, _ in self._producers.values():
            producer.shutdown()


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = Peer(sys.argv[1])
    answers.write('{"ready":true}\n')
    answers.flush()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": getattr(peer, request.pop("do"))(**request)}
        except Exception:  # noqa: BLE001  (the test is told)
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    peer.end()
    # Threads of the client must not keep the process alive.
    os._exit(0)


main()
