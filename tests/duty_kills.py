"""Brokers as processes that are killed with -9 while they change their duties.

A file of settings is written once: afterwards a broker starts by what it wrote there itself. The
master is a SYNC_MASTER, so that an acknowledgement means that the other side has the message, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import threading
import time
from typing import TYPE_CHECKING, Self

from roquet.base.errors import RoquetError
from roquet.base.properties_file import read_properties, write_properties
from roquet.protocol.bodies.replication import HaStatusBody
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection
from roquet.store.records import read_records
from roquet.testing.cluster import pull_command, send_command
from roquet.testing.java import BrokerPlan, Process, free_port, roquet_process
from roquet.testing.pair import SOON, wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "DutyKills"
LEAD = {"brokerRole": "SYNC_MASTER", "brokerId": "0"}


@dataclasses.dataclass
class Member:
    """One broker of the group."""

    plan: BrokerPlan
    folder: Path
    slave_id: str
    process: Process | None = None

    def start(self) -> None:
        """Start it by its file, and wait for its boot line."""
        conf = self.folder / "broker.conf"
        if not conf.exists():
            self.folder.mkdir(parents=True)
            self.plan.write(self.folder).rename(conf)
        self.process = roquet_process(
            f"member-{self.slave_id}", self.folder, "broker", "-c", str(conf)
        )
        self.process.start(timeout_s=120.0)

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self.process is not None:
            self.process.kill()

    @property
    def written_role(self) -> str:
        """The role in its file."""
        return read_properties((self.folder / "broker.conf").read_bytes())["brokerRole"]

    def call(self, command: Command, timeout_s: float = 20.0) -> Command:
        """Ask it. Raises Unreachable and OutcomeUnknown."""
        with BlockingConnection(self.plan.address) as connection:
            return connection.call(command, timeout_s)

    def tell(self, **settings: str) -> Command:
        """Change its settings."""
        body = write_properties(settings)
        return self.call(Command(RequestCode.UPDATE_BROKER_CONFIG, body=body))

    def status(self) -> HaStatusBody | None:
        """Return what it says of the pair; None when it cannot be asked."""
        with contextlib.suppress(RoquetError, ValueError):
            answer = self.call(Command(RequestCode.GET_BROKER_HA_STATUS))
            if answer.code == ResponseCode.SUCCESS:
                return HaStatusBody.decode(answer.body)
        return None


class Group:
    """Two brokers, a name server, and one that sends to whoever leads."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        """Choose ports, start nothing."""
        self.rng = rng
        port = free_port(rng)
        self._names = roquet_process(
            "names", folder / "names", "namesrv", "--listen-port", str(port)
        )
        common = {"mappedFileSizeCommitLog": str(1 << 20), **SOON, "timerWheelEnable": "true"}
        roles = (LEAD, {"brokerRole": "SLAVE", "brokerId": "2"})
        self.members = [
            Member(
                BrokerPlan(
                    *("group", free_port(rng), f"127.0.0.1:{port}", folder / f"store-{number}"),
                    {**common, **role},
                ),
                folder / f"run-{number}",
                str(number),
            )
            for number, role in enumerate(roles, start=1)
        ]
        self.leader = self.members[0]
        self.acked: dict[int, int] = {}
        """Number of the message by queue offset."""
        self.twice: list[int] = []
        """Offsets that were given to two messages."""
        self._sent = 0
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self._names.start()
        for member in self.members:
            member.start()
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()
        self._names.kill()

    @property
    def follower(self) -> Member:
        """The other one."""
        return next(member for member in self.members if member is not self.leader)

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Send to whoever leads during a block."""
        self._stopping.clear()
        thread = threading.Thread(target=self._send_all, name="sender")
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join(60)

    def _send_all(self) -> None:
        while not self._stopping.is_set():
            leader = self.leader
            try:
                with BlockingConnection(leader.plan.address) as connection:
                    while not self._stopping.is_set() and leader is self.leader:
                        self._send(connection)
            except RoquetError:
                time.sleep(0.02)

    def _send(self, connection: BlockingConnection) -> None:
        self._sent += 1
        answer = connection.call(send_command(TOPIC, b"%d:" % self._sent + bytes(200)), 20.0)
        if answer.code == ResponseCode.SUCCESS:
            offset = int((answer.ext or {})["queueOffset"])
            if offset in self.acked:
                self.twice.append(offset)
            self.acked[offset] = self._sent
        else:
            time.sleep(0.01)

    def in_sync(self) -> None:
        """Wait until the follower follows, and the leader acknowledges."""

        def follows() -> bool:
            status = self.leader.status()
            return status is not None and bool(status.in_sync)

        wait_until("the follower follows", follows, 60.0)
        before = len(self.acked)
        wait_until("sends are acknowledged", lambda: len(self.acked) > before, 60.0)

    def killed_while(self, member: Member, **settings: str) -> bool:
        """Tell a broker its role and kill it meanwhile; tell whether it had answered."""
        answered = threading.Event()

        def tell() -> None:
            with contextlib.suppress(RoquetError):
                if member.tell(**settings).code == ResponseCode.SUCCESS:
                    answered.set()

        thread = threading.Thread(target=tell)
        thread.start()
        time.sleep(self.rng.uniform(0.0, 0.25))
        member.kill()
        had_answered = answered.is_set()
        thread.join(30)
        member.start()
        return had_answered

    def pass_on(self, *, kill_leader: bool, kill_follower: bool) -> None:
        """Have the two change places, and kill whom it says in between."""
        old, new = self.leader, self.follower
        down = {"brokerRole": "SLAVE", "brokerId": old.slave_id}
        if kill_leader and self.killed_while(old, **down):
            assert old.written_role == "SLAVE"
        done = old.tell(**down)
        assert done.code == ResponseCode.SUCCESS, done.remark
        if kill_follower and self.killed_while(new, **LEAD):
            assert new.written_role == "SYNC_MASTER"
        done = new.tell(**LEAD)
        assert done.code == ResponseCode.SUCCESS, done.remark
        self.leader = new
        self._mend(old)

    def _mend(self, member: Member) -> None:
        """Set a store aside that has more than the leader's, as its log says to do."""
        end_s = time.monotonic() + 30.0
        while time.monotonic() < end_s:
            status = self.leader.status()
            if status is not None and status.in_sync:
                return
            if (member.plan.store / "diverged").exists():
                member.kill()
                shutil.rmtree(member.plan.store)
                member.start()
            time.sleep(0.1)
        raise AssertionError("the old leader does not follow")

    def check(self) -> None:
        """Every acknowledged message is at the leader, at its place. Nobody sends."""
        assert not self.twice
        found: dict[int, int] = {}
        offset, last = 0, max(self.acked)
        end_s = time.monotonic() + 30.0
        while offset <= last and time.monotonic() < end_s:
            answer = self.leader.call(pull_command(TOPIC, offset))
            if answer.code != ResponseCode.SUCCESS:
                # What was acknowledged just now is not in its queue yet.
                time.sleep(0.01)
                continue
            for record in read_records(answer.body):
                found[record.queue_offset] = int(record.body.partition(b":")[0])
            offset = int((answer.ext or {})["nextBeginOffset"])
        for place, number in self.acked.items():
            assert found.get(place) == number, f"offset {place}: {found.get(place)}, not {number}"
