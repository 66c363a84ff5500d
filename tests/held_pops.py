"""Many pops that a broker in a process of its own holds, a thousand for each of many groups."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tools.attack.raw import RawClient
from tools.faults.crash import Broker

from roquet.testing.java import free_port

if TYPE_CHECKING:
    import random

TOPIC = "Held"
SEND, POP, COUNT, DELETE_TOPIC, DELETE_GROUP = 10, 200050, 200055, 215, 207
FULL = 209
OF_GROUP = 1000
"""Pops of one group; a key takes 1,024."""


class HeldPops:
    """A broker, the pops that wait at it, and the connections that they came by."""

    def __init__(self, folder: Path, rng: random.Random, groups: int, poll_ms: int) -> None:
        """`groups` groups with a thousand pops each are all that the broker takes."""
        self._groups = [f"held{number}" for number in range(groups)]
        self._poll_ms = poll_ms
        more = {
            "maxPopPollingSize": str(groups * OF_GROUP),
            "mappedFileSizeTimerLog": "65536",
            "brokerName": "held",
        }
        folder.mkdir(parents=True)
        self._broker = Broker(folder, free_port(rng), "async", more=more)
        self.clients: list[RawClient] = []
        self.total = groups * OF_GROUP

    def start(self) -> None:
        """Start the broker, with a topic whose only message every group has seen."""
        self._broker.start()
        asyncio.run(self._broker.booted())
        with RawClient(self._broker.address) as client:
            fields = {
                "producerGroup": "p",
                "topic": TOPIC,
                "defaultTopic": "TBW102",
                "defaultTopicQueueNums": "1",
                "queueId": "0",
                "sysFlag": "0",
                "bornTimestamp": "1",
                "flag": "0",
                "properties": "",
                "reconsumeTimes": "0",
            }
            assert client.call(SEND, fields, b"first").code == 0
            for group in self._groups:
                while client.call(POP, self.pop(group, poll_ms=0)).code == 0:
                    pass

    def pop(self, group: str, poll_ms: int | None = None) -> dict[str, str]:
        """Return the fields of a pop that waits."""
        return {
            "consumerGroup": group,
            "topic": TOPIC,
            "queueId": "-1",
            "maxMsgNums": "1",
            "invisibleTime": "600000",
            "pollTime": str(self._poll_ms if poll_ms is None else poll_ms),
            "bornTime": str(time.time_ns() // 1_000_000),
            "initMode": "0",
            "exp": "*",
            "expType": "TAG",
            "order": "false",
        }

    def fill(self, per_client: int) -> None:
        """Have as many pops wait as may, so many by one connection."""
        asked = 0
        for group in self._groups:
            for _ in range(OF_GROUP):
                if asked % per_client == 0:
                    self.clients.append(RawClient(self._broker.address))
                self.clients[-1].send(POP, self.pop(group))
                asked += 1
        end = time.monotonic() + 120
        while self.held() < self.total and time.monotonic() < end:
            time.sleep(0.1)
        assert self.held() == self.total

    def held(self) -> int:
        """Return how many pops wait."""
        with RawClient(self._broker.address) as client:
            return sum(self.held_by(client, group) for group in self._groups)

    def held_by(self, client: RawClient, group: str) -> int:
        """Return how many pops of a group wait."""
        answer = client.call(COUNT, {"consumerGroup": group, "topic": TOPIC, "queueId": "-1"})
        return int(answer.ext.get("pollingNum", "0"))

    def ask(self, code: int, ext: dict[str, str]) -> int:
        """Ask on a connection of its own; return the code of the answer."""
        with RawClient(self._broker.address) as client:
            return client.call(code, ext).code

    def memory(self) -> int:
        """Return the resident bytes of the broker."""
        process = self._broker._process
        assert process is not None
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def end(self, how: signal.Signals) -> float:
        """End the broker under the pops; return the seconds that it took."""
        begun = time.monotonic()
        self._broker.kill(how)
        for client in self.clients:
            client.__exit__()
        self.clients.clear()
        return time.monotonic() - begun


def story(folder: Path, rng: random.Random, *, groups: int, poll_ms: int) -> float:
    """Fill a broker twice and end it under the pops, by a kill and in order; return bytes a pop."""
    held = HeldPops(folder, rng, groups, poll_ms)
    held.start()
    try:
        before = held.memory()
        held.fill(per_client=5 * OF_GROUP)
        bytes_each = (held.memory() - before) / held.total
        assert held.ask(POP, held.pop("held0")) == FULL
        # Hanging up takes a connection's pops away at once, and others may wait then.
        client = held.clients.pop()
        client.__exit__()
        gone = min(5 * OF_GROUP, held.total)
        end = time.monotonic() + 30
        while held.held() > held.total - gone and time.monotonic() < end:
            time.sleep(0.05)
        assert held.held() == held.total - gone
        held.end(signal.SIGKILL)
        # Nothing is held after a kill, and nothing was taken.
        held.start()
        assert held.held() == 0
        held.fill(per_client=5 * OF_GROUP)
        held.end(signal.SIGTERM)
        held.start()
        assert held.held() == 0
    finally:
        held.end(signal.SIGKILL)
    return bytes_each
