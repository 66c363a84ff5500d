"""Timer messages of both makes: brokers side by side, stores that change hands, files compared."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import struct
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from interop_world import our_broker, our_name_server, registered, until
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection
from roquet.store.records import read_records
from roquet.testing.cluster import pull_command, send_command
from roquet.testing.java import BrokerPlan, Process, free_port, java_broker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from roquet.store.records import Record

TIMERS = {
    "timerWheelEnable": "true",
    "recallMessageEnable": "true",
    "timerMaxDelaySec": "259200",
    "mappedFileSizeTimerLog": "1048576",
    "brokerFastFailureEnable": "false",
    "waitTimeMillsInSendQueue": "60000",
    "compressedRegister": "true",
}
TOPIC = "TimerTarget"
START_S = 100
"""A JVM on a machine with more to do than it can has needed 35 s."""
UNIT = struct.Struct(">iqiqiqiiq")
SLOT = struct.Struct(">qqqii")


class Unit(NamedTuple):
    """A unit of the timer log."""

    size: int
    previous: int
    magic: int
    entered_ms: int
    wait_ms: int
    physical_offset: int
    record_size: int
    topic_hash: int
    reserved: int


@dataclasses.dataclass
class TimerBroker:
    """One broker's name, address and store, run by either make."""

    plan: BrokerPlan
    folder: Path
    jars: Path
    running: Process | None = None
    arguments: tuple[str, ...] = ()
    """Further flags of ours."""

    def process(self, make: str) -> Process:
        """Return the process of a make on this store, not yet started."""
        assert self.running is None
        folder = self.folder / make
        if make == "java":
            return java_broker(self.jars, folder, self.plan)
        return our_broker(folder, self.plan, *self.arguments)

    def open(self, make: str) -> None:
        """Start it and wait until it serves timers."""
        self.running = self.process(make).start()
        until("registration", lambda: registered(self.plan.namesrv, self.plan.name), START_S)

    def close(self, how: str) -> None:
        """End it, in good order ("stop") or by SIGKILL ("kill")."""
        assert self.running is not None
        process, self.running = self.running, None
        if how == "kill":
            process.kill()
        else:
            process.stop()

    def ask(self, command: Command) -> Command:
        """Ask it one thing."""
        with BlockingConnection(self.plan.address) as connection:
            return connection.call(command, 20.0)

    def send(self, body: bytes, topic: str = TOPIC, **properties: str) -> Command:
        """Send a message with properties; the id is the body, so that both makes store the same."""
        named = {props.UNIQ_KEY: body.decode(), **properties}
        return self.ask(send_command(topic, body, 0, props.write(named)))

    def recall(self, handle: str, topic: str = TOPIC) -> Command:
        """Recall a message."""
        ext = {"producerGroup": "p", "topic": topic, "recallHandle": handle}
        return self.ask(Command(RequestCode.RECALL_MESSAGE, ext))

    def delivered(self, topic: str = TOPIC) -> list[Record]:
        """Return all that queue 0 of a topic holds."""
        found: list[Record] = []
        with BlockingConnection(self.plan.address) as connection:
            while True:
                answer = connection.call(pull_command(topic, len(found)), 20.0)
                if answer.code != ResponseCode.SUCCESS:
                    return found
                found += read_records(answer.body)

    def has_entered(self, count: int) -> bool:
        """Tell whether so many messages of the timer topic are in the wheel, and durably so."""
        answer = self.ask(Command(RequestCode.GET_TIMER_CHECK_POINT))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return int.from_bytes(answer.body[16:24]) >= count

    def log_units(self) -> list[Unit]:
        """Return the units of its timer log's first file."""
        data = (self.plan.store / "timerlog" / "00000000000000000000").read_bytes()
        whole = data[: len(data) // UNIT.size * UNIT.size]
        units = [Unit(*fields) for fields in UNIT.iter_unpack(whole)]
        return units[: next(i for i, unit in enumerate(units) if unit.size != UNIT.size)]

    def slots(self) -> dict[int, bytes]:
        """Return the used slots of its wheel by place, each with its 32 bytes."""
        data = (self.plan.store / "timerwheel").read_bytes()
        empty = bytes(SLOT.size)
        places = range(0, len(data), SLOT.size)
        assert len(data) == 1_209_600 * SLOT.size
        used = ((at // SLOT.size, data[at : at + SLOT.size]) for at in places)
        return {place: slot for place, slot in used if slot[8:] not in (empty[8:], UNUSED[8:])}


UNUSED = SLOT.pack(-1, -1, -1, 0, 0)
"""A slot of Java's that no message has used."""


class TimerWorld:
    """A name server of ours and brokers of both makes."""

    def __init__(self, jars: Path, folder: Path) -> None:
        """Choose ports."""
        self._chance = random.Random()
        self._folder, self._jars = folder, jars
        port = free_port(self._chance)
        self.namesrv = f"127.0.0.1:{port}"
        self._name_server = our_name_server(folder / "namesrv", port)
        self._brokers: list[TimerBroker] = []

    def broker(self, name: str, more: Mapping[str, str] | None = None) -> TimerBroker:
        """Return a broker with timers, not yet started."""
        folder = self._folder / name
        port = free_port(self._chance)
        extra = {**TIMERS, **(more or {})}
        plan = BrokerPlan(name, port, self.namesrv, folder / "store", extra)
        self._brokers.append(TimerBroker(plan, folder, self._jars))
        return self._brokers[-1]

    def __enter__(self) -> Self:
        """Start the name server."""
        self._name_server.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End all that runs."""
        for broker in self._brokers:
            if broker.running is not None:
                broker.running.kill()
        with contextlib.suppress(Exception):
            self._name_server.kill()


def assert_once_and_in_time(
    came: list[Record], due_ms: Mapping[bytes, int], *, again: bool = False
) -> None:
    """Check that each message was delivered once and not before its time.

    `again` allows a second delivery: a broker killed while it delivers may do so.
    """
    bodies = [record.body for record in came]
    assert set(bodies) == set(due_ms)
    assert again or len(bodies) == len(due_ms), bodies
    early = [r.body for r in came if r.store_timestamp < due_ms[r.body]]
    assert not early


def now_ms() -> int:
    """Return the wall clock's time, Unix milliseconds."""
    return int(time.time() * 1000)
