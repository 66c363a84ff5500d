"""Settings of a broker, each given as an operator gives it and shown by what the broker does."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
import trustme

from broker_harness import dispatched, play
from roquet.base.clock import SystemClock
from roquet.base.errors import UsageError
from roquet.broker.config import load_config
from roquet.broker.network.fast_fail import FastFail
from roquet.broker.services.clients.heartbeats import Clients
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.bodies.routes import decode_route
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.remoting.router import Request, Route
from roquet.store.housekeeping.cleaning import Cleaner
from roquet.store.plugins import make_store
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from roquet.testing.cluster import Cluster

P = TypeVar("P")
SOON_S = 20.0
"""Longer than a loaded machine needs, shorter than the defaults that a test rules out."""


def part(it: Cluster, kind: type[P]) -> P:
    """Return a part of the running broker's life-cycle table."""
    (found,) = {one.service for one in it.broker.app._parts if isinstance(one.service, kind)}
    return found


async def until(holds: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(SOON_S):
            while not holds():  # noqa: ASYNC110  (another part does it)
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {SOON_S} s: {what}") from None


async def change(it: Cluster, **values: str) -> None:
    text = "".join(f"{key}={value}\n" for key, value in values.items())
    answer = await it.call(Command(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode()))
    assert answer.code == 0, answer.remark


@contextlib.asynccontextmanager
async def member(it: Cluster, client_id: str) -> AsyncGenerator[list[str]]:
    """Join the group `g` over a connection of its own; yield the groups of notices that come."""
    heard: list[str] = []

    def hear(request: Request) -> None:
        heard.append((request.command.ext or {})["consumerGroup"])

    route = Route((RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,), hear, "notices")
    client = Client(clock=SystemClock(), handlers=[route])
    await client.start()
    try:
        data = HeartbeatData(client_id=client_id, consumers=(ConsumerData(group="g"),))
        command = Command(RequestCode.HEART_BEAT, body=data.encode())
        assert (await client.call(it.address, command, SOON_S)).code == 0
        yield heard
    finally:
        await client.stop()


def test_members_hear_of_each_other_only_while_that_is_switched_on(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        async with member(it, "one") as one, member(it, "two") as two:
            await change(it, notifyConsumerIdsChangedEnable="true")
            async with member(it, "three") as three:
                await until(lambda: one and two and three, "the notices")
                assert (one, two, three) == (["g"], ["g"], ["g"])

    play(tmp_path, tell, notifyConsumerIdsChangedEnable="false")


def test_notices_gather_while_they_are_not_to_come_at_once(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        async with member(it, "one") as one, member(it, "two") as two:
            timers = {timer.name: timer.action for timer in part(it, Clients).timers}
            await timers["gathered group notices"]()
            await until(lambda: one and two, "the gathered notices")
            assert (one, two) == (["g"], ["g"])
            await change(it, realTimeNotifyConsumerChange="true")
            async with member(it, "three") as three:
                await until(lambda: three, "the notice at once")

    play(tmp_path, tell, realTimeNotifyConsumerChange="false")


def test_silent_client_is_forgotten_after_the_time_of_the_settings(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        ask = Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
        async with member(it, "one"), asyncio.timeout(SOON_S):
            assert (await it.call(ask)).code == 0
            while (await it.call(ask)).code == 0:
                await part(it, Clients).expire()
                await asyncio.sleep(0.05)

    play(tmp_path, tell, channelExpiredTimeout="1000")


def test_name_of_the_settings_is_the_one_that_routes_show(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        ask = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "north-1"})
        route = decode_route((await it.call(ask, it.name_servers)).body)
        assert [broker.broker_name for broker in route.brokers] == ["north-1"]

    play(tmp_path, tell, brokerName="north-1")


def test_everything_is_kept_in_the_folder_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0
        await dispatched(it)

    play(tmp_path, tell, storePathRootDir=str(tmp_path / "here"))
    kept = {path.name for path in (tmp_path / "here").iterdir()}
    assert {"commitlog", "consumequeue", "index", "config"} <= kept
    assert not (tmp_path / "home").exists()


def test_store_of_another_form_than_files_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("storeType=default\n")
    config, _ = load_config(file, {}, {})
    assert config.store.native()["storeType"] == "default"
    file.write_text("storeType=defaultRocksDB\n")
    with pytest.raises(UsageError, match=r"storeType.*must be default.*kept in files.*RocksDB"):
        load_config(file, {}, {})
    # What the settings name reaches the core, which opens no other form either.
    other = dataclasses.replace(config.store, store_type="defaultRocksDB")
    store = make_store({**other.native(), "storePathRootDir": str(tmp_path)}, other, ())
    with pytest.raises(StoreFault, match=r"storeType is \"defaultRocksDB\", must be default"):
        asyncio.run(store.start())


def test_log_is_kept_in_the_folder_of_the_settings(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0

    play(tmp_path, tell, storePathCommitLog=str(tmp_path / "log"))
    assert [path.name for path in (tmp_path / "log").iterdir()][:1] == ["00000000000000000000"]
    assert not (tmp_path / "broker-a" / "commitlog").exists()


def test_recovery_without_checksums_keeps_what_follows_a_changed_body(tmp_path: Path) -> None:
    ends: list[int] = []

    async def tell(it: Cluster) -> None:
        if not ends:
            for body in (b"first", b"canary"):
                assert (await it.send("orders", body)).code == 0
            await dispatched(it)
        ends.append(it.broker.store.native.max_physical_offset())

    play(tmp_path, tell)
    store = tmp_path / "broker-a"
    log = store / "commitlog" / "00000000000000000000"
    log.write_bytes(log.read_bytes().replace(b"canary", b"cAnary"))
    (store / "abort").touch()
    play(tmp_path, tell, checkCRCOnRecover="false")
    assert ends[1] == ends[0]


def test_damage_with_messages_behind_it_is_cut_off_only_where_the_settings_say_so(
    tmp_path: Path,
) -> None:
    ends: list[int] = []

    async def tell(it: Cluster) -> None:
        if not ends:
            for body in (b"first", b"canary", b"last"):
                assert (await it.send("orders", body)).code == 0
            await dispatched(it)
        ends.append(it.broker.store.native.max_physical_offset())

    play(tmp_path, tell)
    store = tmp_path / "broker-a"
    log = store / "commitlog" / "00000000000000000000"
    log.write_bytes(log.read_bytes().replace(b"canary", b"cAnary"))
    (store / "abort").touch()
    with pytest.raises(StoreFault, match="recoveryTruncateCorrupt=true"):
        play(tmp_path, tell)
    play(tmp_path, tell, recoveryTruncateCorrupt="true")
    whole, cut = ends
    assert 0 < cut < whole


def test_index_files_have_the_slots_and_entries_of_the_settings(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", properties="KEYS\x01k\x02")).code == 0
        await dispatched(it)

    play(tmp_path, tell, maxHashSlotNum="700", maxIndexNum="3000")
    (file,) = (tmp_path / "broker-a" / "index").iterdir()
    assert file.stat().st_size == 40 + 700 * 4 + 3000 * 20


def test_answered_send_is_on_the_disk_with_sync_flush(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        native = it.broker.store.native
        for _ in range(5):
            assert (await it.send("orders")).code == 0
            assert native.flushed_offset() == native.max_physical_offset()

    play(tmp_path, tell, flushDiskType="SYNC_FLUSH", flushIntervalCommitLog="60000")


def test_sends_wait_for_a_late_flush_as_long_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster) -> None:
        store = it.broker.store
        # The core flushes by its interval alone, so that every flush is late.
        late = dataclasses.replace(store._durability, flush="SYNC_FLUSH")  # type: ignore[type-var]
        monkeypatch.setattr(store, "_durability", late)
        async with asyncio.timeout(SOON_S):
            for _ in range(6):
                assert (await it.send("orders")).code == 10

    play(tmp_path, tell, syncFlushTimeout="20", flushIntervalCommitLog="60000")


def test_append_that_takes_longer_than_the_settings_allow_keeps_sends_out(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        hanging = cast("Any", SimpleNamespace(append_busy_ms=lambda: 100))
        part(it, FastFail)._appends = hanging
        assert (await it.send("orders")).code == 2
        await change(it, osPageCacheBusyTimeOutMills="200")
        assert (await it.send("orders")).code == 0

    given = {"osPageCacheBusyTimeOutMills": "50", "brokerFastFailureEnable": "true"}
    play(tmp_path, tell, fastPathEnable="false", waitTimeMillsInSendQueue="60000", **given)


def test_pause_between_two_deleted_files_is_the_one_of_the_settings(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for _ in range(60):
            assert (await it.send("orders", b"x" * 60_000)).code == 0
        await dispatched(it)
        await it.broker.store.flush()
        folder = tmp_path / "broker-a" / "commitlog"
        files = sorted(folder.iterdir())
        assert len(files) > 2
        cleaning = asyncio.create_task(part(it, Cleaner).clean())

        def gone() -> int:
            return sum(not path.exists() for path in files)

        await until(gone, "the first file is deleted")
        await asyncio.sleep(1.0)
        assert (gone(), cleaning.done()) == (1, False)
        cleaning.cancel()

    hours = ";".join(map(str, range(24)))
    calm = {"cleanResourceInterval": "10000000", "fileReservedTime": "0", "deleteWhen": hours}
    play(tmp_path, tell, deleteCommitLogFilesInterval="60000", **calm)


def test_versions_of_tls_offered_are_those_of_the_settings(tmp_path: Path) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    leaf.private_key_pem.write_to_path(str(key))
    for blob in leaf.cert_chain_pems:
        blob.write_to_path(str(cert), append=True)
    context = ssl.create_default_context()
    authority.configure_trust(context)

    async def tell(it: Cluster) -> None:
        host, _, port = it.address.partition(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
        writer.close()

    files = {"tls.server.certPath": str(cert), "tls.server.keyPath": str(key)}
    play(tmp_path, tell, **{"tls.protocols": "TLSv1.2", **files})
