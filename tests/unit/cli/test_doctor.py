"""`roquet doctor` on this machine and on one that is not ready."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import trustme

from cli_harness import Running, roquet
from roquet import _native
from roquet.cli.app import run
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("mappedFileSizeCommitLog=1048576", "listenPort=0")


def looks(
    capsys: pytest.CaptureFixture[str], folder: Path, *lines: str
) -> tuple[int, dict[str, dict[str, str]]]:
    file = folder / "broker.conf"
    file.write_text("\n".join((f"storePathRootDir={folder}/store", *lines)))
    code = run(["doctor", "-c", str(file), "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, {row["about"]: row for row in rows}


def test_a_machine_that_is_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = f"listenPort={free_port()}"
    small = ("mappedFileSizeCommitLog=1048576", "bindAddress=127.0.0.1", port)
    code, found = looks(capsys, tmp_path, *small)
    assert code == 0
    assert found["port"]["verdict"] == "ok"
    assert found["address for clients"]["verdict"] in ("ok", "warn")
    assert found["name servers"]["helps"].startswith("namesrvAddr=")
    assert found["clock"]["verdict"] == "ok"
    assert not (tmp_path / "store").exists(), "it changes nothing"


def test_users_that_a_start_would_not_see_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = ("authenticationEnabled=true", "authorizationEnabled=true")
    assert looks(capsys, tmp_path, *SMALL)[1]["users"]["verdict"] == "ok"
    assert looks(capsys, tmp_path, *SMALL, *users)[1]["users"]["found"].startswith("0 in ")
    java = tmp_path / "store" / "config" / "users"
    java.mkdir(parents=True)
    (java / "CURRENT").write_text("MANIFEST-000001\n")
    code, found = looks(capsys, tmp_path, *SMALL, *users)
    assert (code, found["users"]["verdict"]) == (0, "warn")
    assert "roquet auth import" in found["users"]["helps"]
    (java.parent / "users.auth").write_text("damaged")
    code, found = looks(capsys, tmp_path, *SMALL, *users)
    assert (code, found["users"]["verdict"]) == (1, "FAIL")


def test_what_stands_in_the_way_is_named_with_what_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken, socket.socket() as nobody:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        nobody.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        code, found = looks(
            capsys,
            tmp_path,
            "bindAddress=127.0.0.1",
            f"listenPort={port}",
            f"namesrvAddr=127.0.0.1:{nobody.getsockname()[1]}",
            "brokerIP1=192.0.2.7",
        )
        words = (
            f"listenPort={port}",
            "bindAddress=127.0.0.1",
            f"storePathRootDir={tmp_path / 's'}",
        )
        start = roquet(tmp_path, "broker", *(it for word in words for it in ("-s", word)))
    assert code == 1
    assert found["port"]["verdict"] == "FAIL"
    assert found["port"]["found"] in start.stderr + start.stdout, "a start says the same"
    assert "ss -ltnp" in found["port"]["found"]
    assert found["address for clients"]["verdict"] == "warn"
    unreachable = [row for about, row in found.items() if about.startswith("name server ")]
    assert [row["verdict"] for row in unreachable] == ["FAIL"]


def test_a_clock_that_is_years_behind_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "clock_gettime", lambda _: 86_400.0 * 365)
    code, found = looks(capsys, tmp_path, "bindAddress=127.0.0.1", *SMALL)
    assert code == 1
    assert found["clock"]["verdict"] == "FAIL"
    assert "NTP" in found["clock"]["helps"]
    assert found["clock"]["found"].startswith("1971-01-01")


def test_threads_of_connections_are_compared_with_the_cores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    verdicts = {
        threads: looks(capsys, tmp_path, f"ioThreads={threads}", *SMALL)[1]["connections"]
        for threads in range(5)
    }
    assert [verdicts[threads]["verdict"] for threads in range(5)] == [*["ok"] * 3, *["warn"] * 2]
    assert verdicts[0]["found"] == "one event loop serves them"
    assert verdicts[1]["found"] == "threads for them: 1, cores: 2"
    assert verdicts[4]["helps"].startswith("ioThreads=2:")
    monkeypatch.delattr(_native, "NetThreads")
    _, found = looks(capsys, tmp_path, "ioThreads=1", *SMALL)
    assert found["connections"]["verdict"] == "warn"
    assert "no epoll" in found["connections"]["found"]


@pytest.mark.parametrize(
    ("total", "free", "has_log", "verdict", "helps"),
    [
        (100 << 30, 10 << 30, False, "warn", "deleted early from 75 % on"),
        (100 << 30, 1 << 20, False, "FAIL", "two log files"),
        (100 << 30, 50 << 30, False, "ok", ""),
        (100 << 30, 10 << 30, True, "warn", "deleted early from 75 % on"),
        (100 << 30, 32 << 20, True, "warn", "no room for the next log file"),
        (100 << 30, 1 << 20, True, "FAIL", "tables and queues"),
    ],
)
def test_a_disk_that_fills_up_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    total: int,
    free: int,
    has_log: bool,
    verdict: str,
    helps: str,
) -> None:
    usage = shutil.disk_usage(tmp_path)
    full = usage._replace(total=total, used=total - free, free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    settings: tuple[str, ...] = SMALL
    if has_log:
        log = tmp_path / "store" / "commitlog" / "00000000000000000000"
        log.parent.mkdir(parents=True)
        log.touch()
        os.truncate(log, 1 << 30)
        settings = ("listenPort=0",)
    code, found = looks(capsys, tmp_path, "bindAddress=127.0.0.1", *settings)
    assert found["disk"]["verdict"] == verdict
    assert helps in found["disk"]["helps"]
    assert (code == 1) == (verdict == "FAIL")


def test_a_low_limit_of_open_files_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("\n".join((f"storePathRootDir={tmp_path}/store", *SMALL)))
    doctor = [sys.executable, "-m", "roquet", "doctor", "-c", str(file), "--json"]
    limited = subprocess.run(
        ["bash", "-c", 'ulimit -n 1024; exec "$@"', "bash", *doctor],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = {row["about"]: row for row in map(json.loads, limited.stdout.splitlines())}
    assert rows["open files"]["verdict"] == "warn"
    assert rows["open files"]["found"] == "up to 1024"
    assert "ulimit -n 65536" in rows["open files"]["helps"]


def certificate(folder: Path) -> tuple[str, ...]:
    """Write a CA and a certificate of it; return the settings of servers that use them."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    leaf = authority.issue_cert("127.0.0.1")
    leaf.private_key_pem.write_to_path(str(folder / "key.pem"))
    leaf.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    return (
        "tls.server.mode=enforcing",
        f"tls.server.certPath={folder}/cert.pem",
        f"tls.server.keyPath={folder}/key.pem",
        f"tls.client.trustCertPath={folder}/ca.pem",
    )


def test_doctor_tls_name_server_of_the_file_is_asked_over_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tls = certificate(tmp_path)
    file = tmp_path / "namesrv.conf"
    port = free_port()
    file.write_text("\n".join((f"listenPort={port}", "bindAddress=127.0.0.1", *tls)))
    name_server = Running(tmp_path, "namesrv", "-c", str(file))
    try:
        name_server.lines_until("boot success")
        here = (f"namesrvAddr=127.0.0.1:{port}", "bindAddress=127.0.0.1")
        code, found = looks(capsys, tmp_path, *here, *SMALL, *tls)
    finally:
        assert name_server.stop() == 0
    assert found[f"name server 127.0.0.1:{port}"]["verdict"] == "ok"
    assert found["TLS"]["found"] == "ports: TLS, own calls: TLS"
    assert code == 0


BAD_STARTS = {
    "certificate": ("tls.server.mode=enforcing", "tls.server.certPath=/nowhere/cert.pem"),
    "no certificate": ("tls.server.mode=enforcing",),
    "TLS of slaves": ("haTlsEnable=true",),
    "no accounts file": ("aclEnable=true", "rocketmq.acl.plain.file=/nowhere/acl.yml"),
    "broken accounts file": ("aclEnable=true", "rocketmq.acl.plain.file={folder}/acl.yml"),
    "port of metrics": ("metricsExporterType=PROM", "metricsPromExporterPort={taken}"),
    "port for slaves": ("haListenPort={taken}",),
    "newer store": ("storePathRootDir={folder}/newer",),
    "table": ("storePathRootDir={folder}/broken",),
}


@pytest.mark.parametrize("lines", BAD_STARTS.values(), ids=BAD_STARTS)
def test_doctor_what_ends_a_start_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: tuple[str, ...]
) -> None:
    (tmp_path / "acl.yml").write_text("accounts: [{accessKey: x}]")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer/roquet-format.json").write_text('{"format": 99}')
    (tmp_path / "broken/config").mkdir(parents=True)
    (tmp_path / "broken/config/topics.json").write_text("{")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        rows = [line.format(folder=tmp_path, taken=port) for line in lines]
        here = ["bindAddress=127.0.0.1", "brokerIP1=127.0.0.1", *SMALL, *rows]
        code, found = looks(capsys, tmp_path, *here)
        failed = [row for row in found.values() if row["verdict"] == "FAIL"]
        started = roquet(tmp_path, "broker", "-c", str(tmp_path / "broker.conf"))
    assert started.returncode in (253, 254), started.stderr
    assert code == 1
    assert len(failed) == 1, failed
    assert failed[0]["helps"]


def test_doctor_changes_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = looks(capsys, tmp_path, "bindAddress=127.0.0.1", *SMALL)
    assert code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["broker.conf"]
    assert run(["doctor", "-c", str(tmp_path / "broker.conf"), "-s", "brokerId=x"]) == 2
    assert "brokerId" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("enable", "own"),
    [((), "TLS"), (("tls.enable=false",), "plain"), (("tls.enable=true",), "TLS")],
)
def test_own_calls_of_an_enforcing_broker_follow_tls_enable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], enable: tuple[str, ...], own: str
) -> None:
    pair = trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem
    pair.write_to_path(str(tmp_path / "pair.pem"))
    tls = ("tls.server.mode=enforcing", f"tls.server.certPath={tmp_path / 'pair.pem'}", *enable)
    _, found = looks(capsys, tmp_path, "bindAddress=127.0.0.1", *SMALL, *tls)
    assert found["TLS"]["found"] == f"ports: TLS, own calls: {own}"


def test_doctor_ca_of_own_calls_missing_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ("tls.enable=true", "tls.client.trustCertPath=/nowhere/ca.pem")
    code, found = looks(capsys, tmp_path, "bindAddress=127.0.0.1", *SMALL, *own)
    assert (code, found["TLS"]["verdict"]) == (1, "FAIL")
    assert "tls.client.trustCertPath" in found["TLS"]["found"]
