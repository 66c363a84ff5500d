"""A pair over TLS: certificates that do not fit, peers that stop, close or do not read."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import select
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pair_harness import caught_up, connect, pair_world, until
from roquet._native import LogLink, PairTls, Store, feed_log, follow_log, log_limit
from roquet.base.errors import UsageError
from roquet.ha import threads
from roquet.ha.frames import HEADER, REPORT
from roquet.protocol.codes import ResponseCode
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import broker_config
from roquet.testing.pair import certificate, over_tls

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = 1 << 20
TIMES = {"heartbeat_ms": 60_000, "housekeeping_ms": 120_000}
FEED = {**TIMES, "batch": 32_768, "bytes_per_second": 0, "linger_ms": 1}


class Authority:
    """An authority, and `leaf.pem` with `leaf.key` below it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        cert, self.key = certificate(folder)
        self.trust = Path(cert)
        (folder / "ca.cnf").write_text(
            "[ca]\ndefault_ca=x\n[x]\ndatabase=index.txt\nserial=serial\nnew_certs_dir=.\n"
            "default_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n"
        )
        (folder / "index.txt").write_text("")
        (folder / "serial").write_text("01\n")
        self.issue("leaf", "491231000000Z")

    def issue(self, name: str, until_: str, is_authority: str = "FALSE") -> tuple[Path, Path]:
        """Return the files of a certificate, good from 2020 on, and of its key."""
        folder = self.folder
        (folder / "leaf.ext").write_text(f"basicConstraints=CA:{is_authority}\n")
        request = f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        sign = (
            f"ca -batch -config ca.cnf -in {name}.csr -notext -cert {self.trust}"
            f" -keyfile {self.key} -extfile leaf.ext -startdate 200101000000Z"
            f" -enddate {until_} -out {name}.pem"
        )
        for command in (request, sign):
            subprocess.run(
                ["openssl", *command.split()],
                check=True,
                capture_output=True,
                timeout=60,
                cwd=folder,
            )
        return folder / f"{name}.pem", folder / f"{name}.key"

    def tls(self, *, is_master: bool) -> PairTls:
        """Return a side that shows the certificate and trusts the authority."""
        leaf = (self.folder / "leaf.pem", self.folder / "leaf.key")
        return pair_tls(*leaf, self.trust, is_master=is_master)


def pair_tls(cert: Path | None, key: Path | None, trust: Path, *, is_master: bool) -> PairTls:
    texts = [None if path is None else path.read_bytes() for path in (cert, key)]
    return PairTls(is_master=is_master, cert=texts[0], key=texts[1], trust=trust.read_bytes())


@contextlib.contextmanager
def opened(root: Path) -> Iterator[Store]:
    store = Store.open({"storePathRootDir": str(root), "mappedFileSizeCommitLog": FILE})
    store.start()
    try:
        yield store
    finally:
        store.close()


def fed(store: Store, tls: PairTls, fd: int, handshake_ms: int = 60_000) -> LogLink:
    link = feed_log(store, fd, tls=tls, handshake_ms=handshake_ms, **FEED)
    link.tell_acks(loud=True, counts=False)
    return link


def followed(store: Store, tls: PairTls, fd: int, handshake_ms: int = 60_000) -> LogLink:
    return follow_log(store, fd, tls=tls, handshake_ms=handshake_ms, **TIMES)


def news(link: LogLink) -> tuple[bytes, int, tuple[str, str] | None]:
    assert select.select([link.event_fd()], [], [], 60)[0], "no news came"
    return link.take()


def end_of(link: LogLink) -> tuple[str, str]:
    while (end := news(link)[2]) is None:
        pass
    link.join()
    return end


def heard(link: LogLink, size: int) -> bytes:
    data = b""
    while len(data) < size:
        said, _, end = news(link)
        assert end is None, end
        data += said
    return data


@contextlib.contextmanager
def ended(*links: LogLink) -> Iterator[None]:
    try:
        yield
    finally:
        for link in links:
            link.stop()
            link.join()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another authority."""
    return Authority(tmp_path_factory.mktemp("stranger"))


def test_two_threads_copy_a_log_over_tls(tmp_path: Path, authority: Authority) -> None:
    with opened(tmp_path / "master") as master, opened(tmp_path / "slave") as slave:
        for number in range(300):
            master.put("T", 0, b"%d:" % number + bytes(10_000), b"")
        one, other = socket.socketpair()
        feeding = fed(master, authority.tls(is_master=True), one.detach())
        following = followed(slave, authority.tls(is_master=False), other.detach())
        with ended(feeding, following):
            feeding.say(b"challenge")
            assert heard(following, 9) == b"challenge"
            following.say(b"answer" + REPORT.pack(0))
            assert heard(feeding, 14) == b"answer" + REPORT.pack(0)
            following.begin(0, b"")
            feeding.begin(0, REPORT.pack(0))
            end = log_limit(master)
            while feeding.view()[0] < end:
                news(feeding)
        assert slave.max_physical_offset() == end
    logs = [
        b"".join(path.read_bytes() for path in sorted((tmp_path / side / "commitlog").iterdir()))
        for side in ("master", "slave")
    ]
    assert logs[0][:end] == logs[1][:end]


def test_what_is_said_before_the_owner_begins_is_not_lost(
    tmp_path: Path, authority: Authority
) -> None:
    """A slave's second report may come before the owner has taken note of the first."""
    for _ in range(20):
        with opened(tmp_path) as store:
            store.put("T", 0, b"x" * 100, b"")
            end = log_limit(store)
            one, other = socket.socketpair()
            feeding = fed(store, authority.tls(is_master=True), one.detach())
            with ended(feeding), as_slave(other, authority) as peer:
                peer.sendall(REPORT.pack(0))
                report = heard(feeding, REPORT.size)
                peer.sendall(REPORT.pack(0) * 50)
                feeding.begin(0, report)
                assert HEADER.unpack(peer.recv(HEADER.size)) == (0, end)
                rest = end
                while rest:
                    rest -= len(peer.recv(rest))
                peer.sendall(REPORT.pack(end))
                while feeding.view()[0] < end:
                    news(feeding)


def as_slave(plain: socket.socket, authority: Authority) -> ssl.SSLSocket:
    """Return the slave's end of a connection, as OpenSSL speaks."""
    context = ssl.create_default_context(cafile=authority.trust)
    context.check_hostname = False
    context.load_cert_chain(authority.folder / "leaf.pem", authority.folder / "leaf.key")
    plain.settimeout(60)
    return context.wrap_socket(plain)


@pytest.mark.parametrize(
    ("master_is", "slave_is"),
    [("known", "other"), ("other", "known"), ("known", "none"), ("known", "expired")],
)
def test_certificate_that_does_not_fit_lets_nothing_through(
    tmp_path: Path, authority: Authority, stranger: Authority, master_is: str, slave_is: str
) -> None:
    """Neither a word of the owner nor a byte of the log, on either side."""
    sides = {"known": authority, "other": stranger}
    master_tls = sides[master_is].tls(is_master=True)
    if slave_is == "none":
        slave_tls = pair_tls(None, None, authority.trust, is_master=False)
    elif slave_is == "expired":
        cert, key = authority.issue("late", "200102000000Z")
        slave_tls = pair_tls(cert, key, authority.trust, is_master=False)
    else:
        slave_tls = sides[slave_is].tls(is_master=False)
    with opened(tmp_path / "master") as master, opened(tmp_path / "slave") as slave:
        one, other = socket.socketpair()
        feeding = fed(master, master_tls, one.detach())
        following = followed(slave, slave_tls, other.detach())
        with ended(feeding, following):
            feeding.say(b"challenge")
            following.say(REPORT.pack(0))
            for link in (feeding, following):
                said = b""
                while True:
                    more, _, end = news(link)
                    said += more
                    if end is not None:
                        break
                # OpenSSL's and rustls' slaves alike believe the master before it believes them.
                assert said == b""
                assert end[0] in ("fault", "lost"), end
                assert end[0] == "lost" or "does not get through TLS" in end[1]


def test_self_signed_certificate_that_both_trust_is_shown_by_both(tmp_path: Path) -> None:
    """It is its own authority's, which is no certificate for a peer by the book."""
    cert, key = certificate(tmp_path)
    pem = {"cert": Path(cert).read_bytes(), "key": Path(key).read_bytes()}
    master, slave = (
        PairTls(is_master=is_master, trust=pem["cert"], **pem) for is_master in (True, False)
    )
    joined = PairTls(is_master=True, cert=pem["cert"] + pem["key"], key=None, trust=pem["cert"])
    with opened(tmp_path / "store") as store:
        for server in (master, joined):
            one_end, other_end = socket.socketpair()
            feeding = fed(store, server, one_end.detach())
            following = followed(store, slave, other_end.detach())
            with ended(feeding, following):
                following.say(b"hello")
                assert heard(feeding, 5) == b"hello"


def test_expired_self_signed_certificate_is_refused(tmp_path: Path) -> None:
    """That both sides list it does not make it good for ever."""
    cert, key = Authority(tmp_path / "ca").issue("late", "200102000000Z", "TRUE")
    master, slave = (pair_tls(cert, key, cert, is_master=is_master) for is_master in (True, False))
    with opened(tmp_path / "store") as store:
        one, other = socket.socketpair()
        feeding, following = (
            fed(store, master, one.detach()),
            followed(store, slave, other.detach()),
        )
        with ended(feeding, following):
            kind, why = end_of(following)
            assert (kind, "Expired" in why) == ("fault", True), why


@pytest.mark.parametrize("garbage", [b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n"])
def test_peer_that_stops_in_the_handshake_is_dropped(
    tmp_path: Path, authority: Authority, garbage: bytes
) -> None:
    for start, is_master in ((fed, True), (followed, False)):
        with opened(tmp_path) as store:
            one, other = socket.socketpair()
            link = start(store, authority.tls(is_master=is_master), one.detach(), 200)
            with ended(link), other:
                other.sendall(garbage)
                kind, why = end_of(link)
                assert kind == "fault"
                assert ("handshake within 200 ms" in why) == (not garbage.startswith(b"G")), why


def test_close_without_notice_is_told_from_one_in_order(
    tmp_path: Path, authority: Authority
) -> None:
    with opened(tmp_path) as store:
        for is_polite in (True, False):
            one, other = socket.socketpair()
            link = fed(store, authority.tls(is_master=True), one.detach())
            with ended(link):
                peer = as_slave(other, authority)
                peer.sendall(REPORT.pack(0))
                link.begin(0, heard(link, REPORT.size))
                if is_polite:
                    with contextlib.suppress(OSError):
                        peer.unwrap()
                    peer.close()
                else:
                    socket.socket(fileno=peer.detach()).close()
                kind, why = end_of(link)
                assert (kind, bool(why)) == ("lost", not is_polite), why


def test_our_end_is_announced(tmp_path: Path, authority: Authority) -> None:
    with opened(tmp_path) as store:
        one, other = socket.socketpair()
        link = fed(store, authority.tls(is_master=True), one.detach())
        with as_slave(other, authority) as peer:
            link.say(b"verdict")
            link.finish()
            assert end_of(link) == ("stopped", "")
            # Without the notice OpenSSL raises.
            assert (peer.recv(7), peer.recv(1)) == (b"verdict", b"")


def test_slave_that_reads_nothing_holds_back_the_master_and_takes_no_memory(
    tmp_path: Path, authority: Authority
) -> None:
    with opened(tmp_path) as store:
        for _ in range(320):
            store.put("T", 0, bytes(100_000), b"")
        one, other = socket.socketpair()
        link = fed(store, authority.tls(is_master=True), one.detach())
        with ended(link), as_slave(other, authority) as peer:
            peer.sendall(REPORT.pack(0))
            link.begin(0, heard(link, REPORT.size))
            moved = -1
            while moved < link.view()[2]:
                moved = link.view()[2]
                time.sleep(0.3)
            assert 0 < moved < 4 << 20, "frames on their way, what is encrypted, the socket's own"
            used = time.process_time()
            time.sleep(0.5)
            assert time.process_time() - used < 0.25, "it waits, and does not turn in circles"
            got = 0
            while got < log_limit(store):
                got += len(peer.recv(1 << 20))


BAD = {
    "no file": ("{folder}/none.pem", "{key}", "{cert}"),
    "key of another": ("{cert}", "{other}", "{cert}"),
    "no key": ("{cert}", "", "{cert}"),
    "no PEM": ("{cert}", "{key}", "{folder}/text"),
    "trust is a key": ("{cert}", "{key}", "{key}"),
}


@pytest.mark.parametrize("files", BAD.values(), ids=BAD)
@pytest.mark.parametrize("side", ["master", "slave"])
def test_files_that_cannot_be_used_end_the_start(
    tmp_path: Path, files: tuple[str, str, str], side: str
) -> None:
    cert, key = certificate(tmp_path)
    (tmp_path / "second").mkdir()
    other = certificate(tmp_path / "second")[1]
    (tmp_path / "text").write_text("no certificate")
    names = [it.format(folder=tmp_path, cert=cert, key=key, other=other) for it in files]
    settings = dict(zip(("haTlsCertFile", "haTlsKeyFile", "haTlsTrustFile"), names, strict=True))
    config = broker_config(tmp_path, haTlsEnable="true", **settings).ha
    make = config.server_tls if side == "master" else config.client_tls
    with pytest.raises(UsageError, match="the TLS files of the pair cannot be used: "):
        make(FakeClock())


def test_slaves_in_the_handshake_are_strangers_and_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take no slave's place, the oldest goes first, and each goes after its time."""
    monkeypatch.setattr("roquet.ha.log.HANDSHAKE_MS", 1_000)
    assert threads.HANDSHAKE_MS == 3_000
    tls = over_tls(tmp_path)

    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(brokerRole="SYNC_MASTER", slaveTimeout="60000", **tls) as master,
            world.slave(of=master, **tls) as slave,
        ):
            await until(lambda: not master.state.lacks_slave, "the slave follows")
            lame = [await connect(master) for _ in range(20)]
            port = master.pair.master
            await until(lambda: len(port._links) <= 9, "eight of one address, and the slave")
            assert (await world.send(master)).code == ResponseCode.SUCCESS
            for reader, writer in lame:
                with contextlib.suppress(OSError):
                    await reader.read()
                writer.close()
            await until(lambda: len(port._links) == 1, "the slave alone")
            assert slave.pair.slave.link is not None

    asyncio.run(run())


def test_plain_slave_of_a_master_with_tls_gets_nothing(tmp_path: Path) -> None:
    """And the other way round; each says why."""
    tls = over_tls(tmp_path)

    async def run(ours: dict[str, str], theirs: dict[str, str]) -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(**ours) as master,
            world.slave(of=master, **theirs) as slave,
        ):
            await world.send(master)
            reached: list[int] = []
            link = slave.pair.slave

            def tried() -> bool:
                if link.link is None:
                    reached.append(1)
                return len(reached) > 5

            await until(tried, "it has been sent away")
            assert slave.store.native.max_physical_offset() == 0
            assert master.pair.master.slaves == []

    asyncio.run(run(tls, {}))
    asyncio.run(run({}, tls))


def test_changed_certificates_are_used_by_new_connections_while_the_log_is_copied(
    tmp_path: Path,
) -> None:
    """The old connection goes on; a file that cannot be used changes nothing."""
    first, second = Authority(tmp_path / "one"), Authority(tmp_path / "two")
    both = (tmp_path / "trust.pem", tmp_path / "cert.pem", tmp_path / "key.pem")
    use(first, both)
    both[0].write_bytes(first.trust.read_bytes() + second.trust.read_bytes())
    tls = dict(
        zip(("haTlsTrustFile", "haTlsCertFile", "haTlsKeyFile"), map(str, both), strict=True)
    )
    tls["haTlsEnable"] = "true"
    sync = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "60000", "inSyncReplicas": "2"}

    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(**sync, **tls) as master,
            world.slave(of=master, **tls) as slave,
        ):
            await until(lambda: not master.state.lacks_slave, "the slave follows")
            link = slave.pair.slave.link
            codes: list[int] = []
            done = asyncio.Event()

            async def load() -> None:
                while not done.is_set():
                    codes.append((await world.send(master, b"x" * 1_000)).code)

            loading = asyncio.create_task(load())
            shown = await shown_by(master.identity.ha_address)
            for authority in (second, None, first):
                use(authority, both)
                await asyncio.sleep(0.6)
                now = await shown_by(master.identity.ha_address)
                assert (now != shown) == (authority is not None)
                shown = now
            assert slave.pair.slave.link is link, "it was not disturbed"
            assert link is not None
            link.close("a test wants a new connection")
            await until(lambda: slave.pair.slave.link not in (None, link), "it comes again")
            await until(lambda: len(master.pair.master.slaves) == 1, "it is fed again")
            done.set()
            await loading
            assert codes.count(ResponseCode.SUCCESS) > 10
            assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE}
            await caught_up(master, slave)

    asyncio.run(run())


def use(authority: Authority | None, files: tuple[Path, Path, Path]) -> None:
    """Put an authority's certificate in place, or one whose key is missing."""
    if authority is None:
        files[2].write_text("half a file")
        return
    files[1].write_bytes((authority.folder / "leaf.pem").read_bytes())
    files[2].write_bytes((authority.folder / "leaf.key").read_bytes())


async def shown_by(address: str) -> str:
    """Return the certificate that a port shows."""
    host, _, port = address.rpartition(":")
    get = functools.partial(ssl.get_server_certificate, (host, int(port)), timeout=60)
    return await asyncio.to_thread(get)
