"""One broker's name, address and store, run in turn by the Java broker and by ours."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

from interop_world import (
    assert_same,
    has_route,
    messages,
    our_broker,
    our_name_server,
    registered,
    until,
)
from roquet.testing.java import BrokerPlan, Driver, Process, free_port, java_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from interop_world import Sent

TOPIC = "Swapped"
LATER = "SwappedLater"


@dataclasses.dataclass
class Exchange:
    """One broker's name, address and store, run by either make."""

    plan: BrokerPlan
    namesrv: str
    folder: Path
    jars: Path
    driver: Driver
    running: Process | None = None
    given: list[dict[str, Any]] = dataclasses.field(default_factory=list[dict[str, Any]])
    sent: list[Sent] = dataclasses.field(default_factory=list["Sent"])
    readers: int = 0

    def open(self, make: str) -> None:
        """Start the broker of one make on the store."""
        assert self.running is None
        folder = self.folder / make
        if make == "java":
            self.running = java_broker(self.jars, folder, self.plan)
        else:
            self.running = our_broker(folder, self.plan)
        self.running.start()
        until("registration", lambda: registered(self.namesrv, self.plan.name))

    def close(self, how: str) -> None:
        """End it, in good order or by kill -9."""
        assert self.running is not None
        process, self.running = self.running, None
        if how == "kill":
            process.kill()
        else:
            process.stop()
        gone = "the broker is forgotten"
        until(gone, lambda: not has_route(self.namesrv, "TBW102", self.plan.name))
        # Java keeps an empty file of that name when it ended well; ours has none either.
        assert (self.plan.store / "abort").exists() == (how == "kill")

    def write(self, count: int, size: int, seed: int) -> None:
        """Send ordinary messages by the Java producer."""
        more = messages(count, size, seed)
        sent = self.driver.send(self.namesrv, TOPIC, more)
        for queue in range(4):
            before = [one["offset"] for one in self.sent if one["queue"] == queue]
            offsets = [one["offset"] for one in sent if one["queue"] == queue]
            start = max(before, default=-1) + 1
            assert offsets == list(range(start, start + len(offsets))), "offsets go on"
        self.given += more
        self.sent += sent

    def read_everything(self) -> None:
        """Consume all with a new group and compare with what the producers were told."""
        self.readers += 1
        group = f"reader_{self.readers}"
        received = self.driver.consume(self.namesrv, TOPIC, group, len(self.given))
        assert_same(self.given, self.sent, received)

    def find_by_key(self, seed: int, index: int) -> None:
        """Query the index for one message."""
        key = f"key-{seed}-{index}"
        (place,) = [n for n, message in enumerate(self.given) if message["keys"] == key]
        text = self.driver.mqadmin("queryMsgByKey", "-n", self.namesrv, "-t", TOPIC, "-k", key)
        assert self.sent[place]["msg_id"] in text

    def leave_delayed(self, seed: int) -> list[bytes]:
        """Send messages that are due when the next make has opened the store."""
        delayed = [{**message, "delay": 5} for message in messages(3, seed=seed)]
        self.driver.send(self.namesrv, LATER, delayed)
        return sorted(message["body"] for message in delayed)

    def read_delayed(self, bodies: list[bytes], group: str, how: str) -> None:
        """Check that they come, and where they belong; once, if the writer ended in good order.

        How far deliveries have come is noted every ten seconds: what a broker delivered just
        before it was killed, its successor delivers again.
        """
        received = self.driver.consume(self.namesrv, LATER, group, len(bodies))
        while how == "kill" and (missing := set(bodies) - {one["body"] for one in received}):
            more = self.driver.consume(self.namesrv, LATER, group, 1)
            assert more, f"never delivered: {missing}"
            received += more
        assert {one["topic"] for one in received} == {LATER}
        came = sorted(one["body"] for one in received)
        assert sorted(set(came) if how == "kill" else came) == bodies
        assert all(came.count(body) <= 2 for body in bodies)


def exchange(jars: Path, driver: Driver, folder: Path) -> Iterator[Exchange]:
    """Start a name server for it; end all that runs afterwards."""
    chance = random.Random()
    port = free_port(chance)
    namesrv = our_name_server(folder / "namesrv", port).start()
    address = f"127.0.0.1:{port}"
    # Both makes then register with a zlib body; Java's own name server cannot read what its
    # broker sends (the flag beside it says plain), ours can.
    extra = {"compressedRegister": "true"}
    plan = BrokerPlan("swap", free_port(chance), address, folder / "store", extra)
    built = Exchange(plan, address, folder, jars, driver)
    yield built
    if built.running is not None:
        built.running.kill()
    namesrv.kill()
