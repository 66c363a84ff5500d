"""Questions on which documents and releases differ, each as a test with the question's name.

Where the answer is a behaviour that another test shows in full, this one checks the setting.
"""

from __future__ import annotations

import io
import logging
import os
import socket
import subprocess
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker_harness import play
from remoting_harness import on_loop
from roquet.base.clock import SystemClock
from roquet.base.config import as_properties
from roquet.base.errors import UsageError
from roquet.broker.app import build, explain
from roquet.broker.config import load_config
from roquet.broker.network.routes import DECLINED
from roquet.cli.exits import EXIT_CONFIGURATION, EXIT_INITIALIZE, EXIT_UNEXPECTED
from roquet.namesrv import app as namesrv_app
from roquet.namesrv.config import NamesrvConfig, Settings
from roquet.namesrv.config import load_config as load_namesrv
from roquet.namesrv.table import DEFAULT_EXPIRY_MS
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client, ClientConfig
from roquet.remoting.tls import RELOAD_S
from roquet.service.http.address_server import EVERY_S, FIRST_S
from roquet.service.ratelog import RateLog
from roquet.store.plugins import GROUP
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from roquet.testing.cluster import Cluster


def texts(**flags: str | int | bool) -> dict[str, str]:
    """Return a broker's settings as text, by Java name."""
    return as_properties(load_config(None, {}, dict(flags))[0])


def parts(**flags: str | int | bool) -> str:
    return explain(load_config(None, {}, dict(flags))[0], "parts")


def test_name_server_scan_of_dead_brokers() -> None:
    built = namesrv_app.build(Settings(NamesrvConfig()), SystemClock())
    assert "forget silent brokers every 10s" in built.app.explain()
    assert namesrv_app.FIRST_SCAN_S == 5
    assert DEFAULT_EXPIRY_MS == 120_000
    changed, _ = load_namesrv(None, {}, {"scanNotActiveBrokerInterval": 5000})
    built = namesrv_app.build(Settings(changed), SystemClock())
    assert "forget silent brokers every 5s" in built.app.explain()


def test_transaction_check() -> None:
    found = texts()
    assert found["transactionTimeOut"] == "6000"
    assert found["transactionCheckMax"] == "15"
    assert found["transactionCheckInterval"] == "30000"
    assert "check transactions every 30s" in parts()
    assert "check transactions every 6s" in parts(transactionCheckInterval=6000)


def test_slave_metadata_sync() -> None:
    assert "copy the master's tables every 10s" in parts()
    assert "copy the master's tables every 60s" in parts(slaveSyncInterval=60_000)


def test_slaves_access_message_in_memory_max_ratio() -> None:
    assert texts()["accessMessageInMemoryMaxRatio"] == "40"
    slave = texts(brokerRole="SLAVE", brokerId=1)
    assert slave["accessMessageInMemoryMaxRatio"] == "30"


def test_configured_ha_master_address() -> None:
    given = texts(brokerRole="SLAVE", brokerId=1, haMasterAddress="10.0.0.9:10912")
    assert given["haMasterAddress"] == "10.0.0.9:10912"


def test_address_server_for_name_servers() -> None:
    assert (FIRST_S, EVERY_S) == (10, 120)
    wanted: dict[str, str | bool] = {
        "fetchNamesrvAddrByAddressServer": True,
        "rmqAddressServerDomain": "a.example",
    }
    assert "look up name servers every 120s" in parts(**wanted)
    assert "look up" not in parts(**wanted, namesrvAddr="127.0.0.1:9876")
    assert "look up" not in parts()


def test_sync_master_without_explicit_in_sync_replicas() -> None:
    def lacks(**flags: str | int | bool) -> bool:
        config, _ = load_config(None, {}, {"brokerRole": "SYNC_MASTER", **flags})
        return build(config).state.lacks_slave

    assert lacks()
    assert lacks(inSyncReplicas=2)
    assert not lacks(inSyncReplicas=1)


def test_ha_housekeeping_clock() -> None:
    assert texts()["haHousekeepingInterval"] == "20000"


def test_file_reserved_time() -> None:
    assert texts()["fileReservedTime"] == "72"


def test_registration() -> None:
    assert texts()["registerBrokerTimeoutMills"] == "24000"
    assert "register every 30s" in parts()
    assert "register every 10s" in parts(registerNameServerPeriod=1)
    assert "register every 60s" in parts(registerNameServerPeriod=600_000)


def test_outer_client() -> None:
    config = ClientConfig()
    assert (config.connect_s, config.idle_s) == (3.0, 120.0)


@on_loop
async def test_outer_client_buffers() -> None:
    """Sizes of socket buffers and the high water mark are settings, and reach the socket."""
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    config = ClientConfig(send_buffer=65_536, receive_buffer=32_768, high_water=10_000)
    client = Client(clock=SystemClock(), config=config)
    await client.start()
    try:
        await client.call_one_way(f"127.0.0.1:{port}", Command(105, {}))
        (link,) = client._connections.values()
        assert link._transport is not None
        own = link._transport.get_extra_info("socket")
        # Linux doubles what is asked for, for its own book-keeping.
        for option, asked in ((socket.SO_SNDBUF, 65_536), (socket.SO_RCVBUF, 32_768)):
            assert own.getsockopt(socket.SOL_SOCKET, option) in (asked, 2 * asked)
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert link._transport.get_write_buffer_limits()[1] == 10_000
    finally:
        await client.stop()
        server.close()


def test_logs() -> None:
    """One line for what one peer says over and over; `test_log.py` shows text and JSON."""
    out = io.StringIO()
    clock = FakeClock()
    logger = logging.getLogger("test of settled questions")
    logger.propagate = False
    logger.addHandler(logging.StreamHandler(out))
    limited = RateLog(logger, clock)
    for _ in range(1_000):
        limited.warning(("broken frame", "10.0.0.1"), "10.0.0.1 sent a broken frame")
    limited.warning(("broken frame", "10.0.0.2"), "10.0.0.2 sent a broken frame")
    assert out.getvalue().splitlines() == [
        "10.0.0.1 sent a broken frame",
        "10.0.0.2 sent a broken frame",
    ]


def test_exit_codes_and_texts() -> None:
    codes = (EXIT_UNEXPECTED, EXIT_CONFIGURATION, EXIT_INITIALIZE)
    assert codes == tuple(code & 0xFF for code in (-1, -2, -3))


def test_filter_servers() -> None:
    assert RequestCode.REGISTER_FILTER_SERVER in DECLINED
    config, report = load_config(None, {}, {})
    assert "filter" not in explain(config, "parts").replace("save filters", "")
    assert report.unknown == ()


def test_filter_servers_are_neither_started_nor_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *what, **_: started.append(what))
    monkeypatch.setattr(os, "posix_spawn", lambda *what, **_: started.append(what))
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=broker-a\nfilterServerNums=1\n")
    assert load_config(file, {}, {})[1].unknown == ("filterServerNums",)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()

    async def tell(it: Cluster) -> None:
        answer = await it.call(
            Command(RequestCode.REGISTER_FILTER_SERVER, {"filterServerAddr": "10.0.0.1:1"})
        )
        assert (answer.code, answer.remark) == (3, " request type 301 not supported")
        update = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"filterServerNums=1")
        assert (await it.call(update)).code == 29

    play(tmp_path / "a", tell)
    assert started == []
    assert children.read_text() == before


def test_message_store_plug_ins() -> None:
    assert GROUP == "roquet.store_plugins"
    assert list(entry_points(group=GROUP)) == []
    assert texts()["messageStorePlugIn"] == ""


def test_dledger_commit_log_mode(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("enableDLegerCommitLog=true\n")
    with pytest.raises(UsageError, match="brokers under a controller replace it"):
        load_config(file, {}, {})


def test_certificate_reload(tmp_path: Path) -> None:
    assert RELOAD_S == 0.5
    assert "reload certificates" not in parts()
    pair = {"tls.server.certPath": str(tmp_path / "c"), "tls.server.keyPath": str(tmp_path / "k")}
    assert "reload certificates every 0.5s" in parts(**pair)


def test_bind_address(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\n")
    assert texts()["bindAddress"] == "127.0.0.1"
    assert load_config(file, {}, {})[0].server.bind_address == "0.0.0.0"


def test_auto_create_topic_enable() -> None:
    found = texts()
    assert (found["autoCreateTopicEnable"], found["autoCreateTopicMax"]) == ("true", "10000")


def test_ports() -> None:
    assert texts()["listenPort"] == "10911"
    broker = build(load_config(None, {}, {"listenPort": 20_911})[0])
    assert broker.listeners.fast_port == 20_909
    assert NamesrvConfig().listen_port == 9876


def test_self_check_timers() -> None:
    assert "check the store's files every 600s" in parts()
    assert "delete old files every 10s" in parts()


def test_load_day_totals() -> None:
    assert "save totals every 60s" in parts()


def test_counts_of_request_codes() -> None:
    removed_in_5 = {code for code in RequestCode if 50 <= code <= 54}
    assert len(removed_in_5) == 5
    ours = {
        RequestCode.SEND_IN_SEQUENCE,
        RequestCode.GET_SEQUENCES,
        RequestCode.GET_USERS,
        RequestCode.GET_SUMS,
    }
    assert len(set(RequestCode) - removed_in_5 - ours) == 169


@pytest.mark.parametrize(
    ("addresses", "part"),
    [
        ("127.0.0.1:9876;10.0.0.1", "'10.0.0.1' is not host:port"),
        ("127.0.0.1:9876;10.0.0.1:x", "'10.0.0.1:x' has no port within 0..65535"),
        ("127.0.0.1:99999", "'127.0.0.1:99999' has no port within 0..65535"),
        ("::1:9876", "'::1:9876' is not host:port"),
    ],
)
def test_a_wrong_name_server_address_is_named(addresses: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_config(None, {}, {"namesrvAddr": addresses})
    assert part in str(caught.value)
    assert "a list looks like 192.168.0.1:9876;192.168.0.2:9876" in str(caught.value)
