"""Who may copy a log: slaves that lie, that do not know the secret, that speak no TLS."""

from __future__ import annotations

import asyncio
import functools
import ssl
from typing import TYPE_CHECKING

import pytest

from pair_harness import PairWorld, caught_up, connect, pair_world, until
from roquet.base.clock import SystemClock
from roquet.base.errors import UsageError
from roquet.base.overriding import override
from roquet.ha.frames import PeerFault
from roquet.ha.secret import MasterGate, SlaveGate
from roquet.ha.strangers import is_listed
from roquet.protocol.codes import ResponseCode
from roquet.testing.cluster import broker_config
from roquet.testing.pair import over_tls

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.broker.app import Broker
    from roquet.ha.slave import MasterLink

SECRET = "sixteen bytes or more"


@pytest.mark.parametrize(
    "lie",
    [
        (2**63 - 1).to_bytes(8, "big"),
        (-1).to_bytes(8, "big", signed=True),
        bytes(8) + (2**62).to_bytes(8, "big"),
        bytes(8) + b"\x01" + bytes(8),
    ],
)
def test_b17_1155_359_a_lie_is_no_acknowledgement(tmp_path: Path, lie: bytes) -> None:
    """#1155, #359: the connection is dropped, and no send is answered as copied."""

    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(brokerRole="SYNC_MASTER", slaveTimeout="60000") as master,
        ):
            await world.send(master)
            reader, writer = await connect(master)
            writer.write(lie)
            received = b""
            while data := await reader.read(65_536):
                received += data
            writer.close()
            await until(lambda: not master.pair.master.slaves, "the liar is forgotten")
            assert master.pair.replicas.watermark == 0
            answer = await world.send(master)
            assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE

    asyncio.run(run())


def test_two_connections_of_one_host_are_one_slave(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(
                brokerRole="SYNC_MASTER", inSyncReplicas="3", slaveTimeout="60000"
            ) as master,
            world.slave(of=master),
            world.slave(of=master, folder="again", brokerId="2"),
        ):
            await until(lambda: len(master.pair.master.slaves) == 2, "two connections")
            answer = await world.send(master)
            assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE

    asyncio.run(run())


def test_10956_with_the_secret_slaves_are_told_apart(tmp_path: Path) -> None:
    """#10956: the port of a pair asks who is there."""

    async def run() -> None:
        secret = {"haSharedSecret": SECRET, "slaveTimeout": "60000"}
        async with (
            pair_world(tmp_path) as world,
            world.master(brokerRole="SYNC_MASTER", inSyncReplicas="3", **secret) as master,
            world.slave(of=master, **secret) as one,
            world.slave(of=master, folder="again", brokerId="2", **secret) as two,
        ):
            await until(lambda: not master.state.lacks_slave, "two slaves follow")
            answer = await world.send(master)
            assert answer.code == ResponseCode.SUCCESS
            await caught_up(master, one)
            await caught_up(master, two)
            assert sorted(master.pair.replicas.by_slave()) == ["id 1", "id 2"]
            reader, writer = await connect(master)
            assert (await reader.readexactly(40)).startswith(b"ROQUETHA")
            writer.write(bytes(72))
            assert await reader.read() == b"", "dropped"
            writer.close()

    asyncio.run(run())


@pytest.mark.parametrize("said", [0, 1, 71])
def test_b17_half_a_handshake_is_left_after_the_silence(tmp_path: Path, said: int) -> None:
    """71 of 72 bytes and nothing more: no slave, no copy of the log, no place taken for ever."""

    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(haSharedSecret=SECRET, haHousekeepingInterval="300") as master,
        ):
            await world.send(master)
            reader, writer = await connect(master)
            challenge = await reader.readexactly(40)
            assert challenge.startswith(b"ROQUETHA")
            writer.write(bytes(said))
            assert await reader.read() == b"", "not a byte of the log, and then the end"
            writer.close()
            assert not master.pair.master.slaves
            assert master.pair.replicas.by_slave() == {}

    asyncio.run(run())


def test_a_slave_with_a_secret_follows_only_who_knows_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(haSharedSecret="another one of 22 bytes") as master,
            world.slave(of=master, haSharedSecret=SECRET) as slave,
        ):
            await world.send(master)
            # It comes again and again, and is sent away each time.
            await asyncio.sleep(0)
            await until(lambda: slave.pair.slave.state.name == "HANDSHAKE", "it tries")
            await until(lambda: slave.pair.slave.link is None, "it is sent away")
            assert slave.store.native.max_physical_offset() == 0

    asyncio.run(run())


def test_the_gates_step_by_step() -> None:
    master, slave = MasterGate(SECRET, b"m" * 32), SlaveGate(SECRET, 7, b"s" * 32)
    answer = b""
    for byte in master.challenge():
        said, rest = slave.receive(bytes((byte,)))
        answer += said
        assert rest is None
    assert master.receive(answer[:-1]) is None
    passed = master.receive(answer[-1:] + b"report")
    assert passed is not None
    who, proof, behind = passed
    assert (who, behind) == (7, b"report")
    assert slave.receive(proof + b"frame") == (b"", b"frame")
    with pytest.raises(PeerFault, match="haSharedSecret"):
        MasterGate("some other secret", b"m" * 32).receive(answer)
    with pytest.raises(PeerFault, match="haSharedSecret"):
        MasterGate(SECRET, b"n" * 32).receive(answer)
    liar = SlaveGate(SECRET, 7, b"s" * 32)
    liar.receive(master.challenge())
    with pytest.raises(PeerFault, match="haSharedSecret"):
        liar.receive(bytes(32))
    with pytest.raises(PeerFault, match="does not ask"):
        SlaveGate(SECRET, 7, b"s" * 32).receive(b"\x00")


class SetClock(SystemClock):
    """A wall clock that somebody sets."""

    ahead_ms = 0

    @override
    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def heard_after(link: MasterLink, when_ms: int) -> bool:
    return link.last_read_ms > when_ms


async def first_byte(master: Broker, trust: str) -> bytes:
    """Connect over TLS without a certificate, report, and return what comes."""
    context = ssl.create_default_context(cafile=trust)
    context.check_hostname = False
    host, _, port = master.identity.ha_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        writer.write(bytes(8))
        return await reader.readexactly(1)
    finally:
        writer.close()


@pytest.mark.parametrize("more", [{}, {"haSharedSecret": SECRET}])
def test_the_log_over_tls(tmp_path: Path, more: dict[str, str]) -> None:
    """With double write, with and without the secret."""
    tls = {**over_tls(tmp_path), **more}

    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(brokerRole="SYNC_MASTER", slaveTimeout="60000", **tls) as master,
            world.slave(of=master, **tls) as slave,
        ):
            await until(lambda: not master.state.lacks_slave, "the slave follows")
            for _ in range(20):
                answer = await world.send(master, b"x" * 10_000)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
            await caught_up(master, slave)
            # Without a certificate nobody gets in: trust is asked of both sides.
            with pytest.raises((ssl.SSLError, OSError, EOFError)):
                await first_byte(master, tls["haTlsCertFile"])

    asyncio.run(run())


def test_a_clock_that_is_set_ends_no_connection_over_tls(tmp_path: Path) -> None:
    """On either side: silence is measured by a clock that nobody can set."""
    tls = over_tls(tmp_path)
    clock = SetClock()

    async def tell(world: PairWorld) -> None:
        world.clock = clock
        async with (
            world.master(brokerRole="SYNC_MASTER", slaveTimeout="60000", **tls) as master,
            world.slave(of=master, **tls) as slave,
        ):
            await until(lambda: not master.state.lacks_slave, "the slave follows")
            link, ends = slave.pair.slave.link, [it.address for it in master.pair.master.slaves]
            assert link is not None
            for jump in (3_600_000, -7_200_000, 0):
                clock.ahead_ms = jump
                soon = clock.now_ms() + 500
                # Whoever sends a heartbeat has looked for silence in the same turn.
                await until(functools.partial(heard_after, link, soon), "heartbeats")
                assert (await world.send(master)).code == ResponseCode.SUCCESS
                assert slave.pair.slave.link is link
                assert [it.address for it in master.pair.master.slaves] == ends

    async def run() -> None:
        async with pair_world(tmp_path) as world:
            await tell(world)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"haSharedSecret": "short"}, "16 bytes"),
        ({"haMasterAddress": "nowhere"}, "host:port"),
        ({"brokerRole": "SLAVE"}, "must be > 0"),
        ({"brokerId": "1"}, "must be 0"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, changes: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        broker_config(tmp_path, **changes)


def test_tls_without_files_is_said(tmp_path: Path) -> None:
    config = broker_config(tmp_path, haTlsEnable="true")
    with pytest.raises(UsageError, match="haTlsCertFile"):
        config.ha.server_tls(SystemClock())
    with pytest.raises(UsageError, match="haTlsTrustFile"):
        config.ha.client_tls(SystemClock())
    config = broker_config(tmp_path, haTlsEnable="true", haTlsCertFile=str(tmp_path / "none"))
    with pytest.raises(UsageError, match="cannot be used"):
        config.ha.server_tls(SystemClock())


ANYWHERE = {"bindAddress": "0.0.0.0", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1"}


def with_accounts(folder: Path) -> dict[str, str]:
    """Return what has requests need an account."""
    file = folder / "plain_acl.yml"
    file.write_text(
        "accounts:\n- {accessKey: operator, secretKey: secret-of-operator, admin: true}\n"
    )
    return {"aclEnable": "true", "rocketmq.acl.plain.file": str(file)}


@pytest.mark.parametrize(
    ("more", "is_open", "said"),
    [
        ({}, False, "haSharedSecret on both sides, or haSlaveAddresses"),
        ({"haOpenWithAccessControl": "true"}, True, "gives the whole log to every host"),
        ({"haSharedSecret": SECRET}, True, ""),
        ({"haSlaveAddresses": "127.0.0.1, 10.0.0.0/8"}, True, ""),
    ],
)
def test_with_accounts_the_port_for_slaves_is_open_only_to_known_ones(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    more: dict[str, str],
    is_open: bool,
    said: str,
) -> None:
    async def run() -> None:
        async with pair_world(tmp_path) as world:
            accounts = with_accounts(tmp_path)
            async with world.master(**ANYWHERE, **accounts, **more) as master:
                lines = [it.message for it in caplog.records if "the port for slaves" in it.message]
                assert (len(lines), said in "".join(lines)) == (int(bool(said)), True)
                if is_open:
                    _, writer = await connect(master)
                    writer.close()
                else:
                    assert master.pair.master._server is None

    asyncio.run(run())


def test_without_accounts_a_port_that_others_reach_is_open_and_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(brokerRole="SYNC_MASTER", slaveTimeout="60000", **ANYWHERE) as master,
            world.slave(of=master),
        ):
            await until(lambda: not master.state.lacks_slave, "the slave follows")
            assert (await world.send(master)).code == ResponseCode.SUCCESS

    asyncio.run(run())
    warned = [it for it in caplog.records if "gives the whole log" in it.message]
    assert [it.levelname for it in warned] == ["WARNING"]


def test_a_host_that_is_not_listed_gets_nothing_and_counts_for_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stranger who says what it has copied is no replica."""

    async def run() -> None:
        listed = {"brokerRole": "SYNC_MASTER", "haSlaveAddresses": "10.1.2.3,fd00::/8"}
        async with pair_world(tmp_path) as world, world.master(**listed) as master:
            await world.send(master)
            reader, writer = await connect(master)
            writer.write(bytes(8))
            assert await reader.read() == b"", "not a byte of the log"
            writer.close()
            assert (await world.send(master)).code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert master.pair.replicas.by_slave() == {}

    asyncio.run(run())
    assert "haSlaveAddresses does not name it" in caplog.text


@pytest.mark.parametrize(
    ("host", "text", "listed"),
    [
        ("10.0.0.9", "", True),
        ("10.0.0.9", "10.0.0.9", True),
        ("10.0.0.9", "10.0.0.0/28, fd00::/8", True),
        ("::ffff:10.0.0.9", "10.0.0.0/28", True),
        ("10.0.0.9", "::ffff:10.0.0.9", True),
        ("10.0.0.9", "::ffff:10.0.0.0/124", True),
        ("10.0.0.16", "::ffff:10.0.0.0/124", False),
        ("10.0.0.16", "::ffff:0:0/96", True),
        ("fd00::1", "::ffff:0:0/96", False),
        ("fd00::1", "10.0.0.0/28, fd00::/8", True),
        ("10.0.0.16", "10.0.0.0/28", False),
        ("?", "10.0.0.0/28", False),
    ],
)
def test_a_list_of_slaves_names_addresses_and_networks(host: str, text: str, listed: bool) -> None:
    assert is_listed(host, text) is listed


@pytest.mark.parametrize("text", ["host.name", "10.0.0.1/8", "10.0.0.1;10.0.0.2", "1.2.3.4," * 257])
def test_a_list_of_slaves_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="must be IP addresses and networks"):
        broker_config(tmp_path, haSlaveAddresses=text)
