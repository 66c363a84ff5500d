"""`roquet broker new`: several brokers of one machine that do not get in each other's way."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path

import pytest

from cli_harness import Running, roquet
from roquet.base.properties_file import read_properties
from roquet.testing.cluster import TINY
from roquet.testing.java import free_port

GUIDE = Path(__file__).resolve().parents[3] / "docs/guide/capacity.md"


def test_brokers_of_one_machine_run_beside_each_other_by_the_files(tmp_path: Path) -> None:
    server = Running(tmp_path, "namesrv", "-s", "listenPort=0")
    address = server.lines_until("boot success")[-1].split("address ")[1].split(",")[0].strip()
    port = free_port(random.Random())
    words = ("--count", "2", "-n", address, "--store", str(tmp_path / "store"), "--name", "mq")
    (tmp_path / "etc").mkdir()
    done = roquet(
        tmp_path,
        "broker",
        "new",
        str(tmp_path / "etc"),
        *words,
        "--port",
        str(port),
        "--ip",
        "127.0.0.1",
    )
    assert (done.returncode, done.stderr) == (0, "")
    small = [
        it for key, value in TINY.items() if key != "listenPort" for it in ("-s", f"{key}={value}")
    ]
    brokers: list[Running] = []
    try:
        for number in (1, 2):
            file = str(tmp_path / "etc" / f"broker-{number}.conf")
            assert file in done.stdout
            brokers.append(Running(tmp_path, "broker", "-c", file, *small))
            brokers[-1].lines_until("boot success")
        listed = roquet(tmp_path, "broker", "ls", "-n", address, "-o", "json")
        rows = [json.loads(line) for line in listed.stdout.splitlines()]
        assert [(it["broker"], it["address"]) for it in rows] == [
            ("mq-1", f"127.0.0.1:{port}"),
            ("mq-2", f"127.0.0.1:{port + 10}"),
        ]
    finally:
        assert [one.stop() for one in (*brokers, server)] == [0] * (len(brokers) + 1)


def test_no_two_brokers_share_a_port_a_name_or_a_folder(tmp_path: Path) -> None:
    words = ("-c", "40", "-n", "10.0.0.1:9876", "--store", str(tmp_path / "store"))
    assert roquet(tmp_path, "broker", "new", str(tmp_path), *words).returncode == 0
    files = [read_properties(file.read_bytes()) for file in tmp_path.glob("broker-*.conf")]
    assert len(files) == 40
    for key in ("brokerName", "storePathRootDir", "metricsPromExporterPort"):
        assert len({it[key] for it in files}) == 40
    ports = [int(it["listenPort"]) + beside for it in files for beside in (-2, 0)]
    assert len({*ports, *(int(it["haListenPort"]) for it in files)}) == 120


def test_files_that_are_there_stay_and_more_can_follow(tmp_path: Path) -> None:
    words = ("broker", "new", str(tmp_path), "-n", "a:9876", "--store", str(tmp_path / "store"))
    assert roquet(tmp_path, *words, "-c", "2").returncode == 0
    before = (tmp_path / "broker-2.conf").read_bytes()
    again = roquet(tmp_path, *words, "-c", "3", "--port", "2000")
    assert again.returncode == 2
    assert "broker-1.conf" in again.stderr
    assert not (tmp_path / "broker-3.conf").exists(), "all or none"
    assert roquet(tmp_path, *words, "-c", "1", "--first", "3").returncode == 0
    assert (tmp_path / "broker-2.conf").read_bytes() == before
    assert read_properties((tmp_path / "broker-3.conf").read_bytes())["listenPort"] == "10931"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("-c", "65"), "at most 64"),
        (("-c", "0"), "0"),
        (("-n", "x y"), "host:port"),
        (("--name", "a b/c"), "letters"),
        (("--cluster", "a b"), "letters"),
        (("--port", "65530", "-c", "2"), "65535"),
        (("--first", "9000"), "65535"),
        (("--ip", "no address"), "brokerIP1"),
    ],
)
def test_what_a_broker_would_refuse_writes_nothing(
    tmp_path: Path, changed: tuple[str, ...], said: str
) -> None:
    words = ("-c", "1", "-n", "a:9876", "--store", str(tmp_path / "store"), *changed)
    done = roquet(tmp_path, "broker", "new", str(tmp_path), *words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.conf"))


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    words = ("-c", "1", "-n", "a:9876", "--store", "s")
    done = roquet(tmp_path, "broker", "new", str(tmp_path / "none"), *words)
    assert done.returncode == 2
    assert f"mkdir -p {tmp_path / 'none'}" in done.stderr


def test_command_of_the_guide_writes_four_brokers(tmp_path: Path) -> None:
    block = GUIDE.read_text().split("```\n")[1].replace("/etc/roquet", str(tmp_path))
    done = roquet(tmp_path, *shlex.split(block)[1:])
    assert (done.returncode, done.stderr) == (0, "")
    files = [read_properties(file.read_bytes()) for file in sorted(tmp_path.glob("broker-*.conf"))]
    assert [it["listenPort"] for it in files] == ["10911", "10921", "10931", "10941"]
    assert {it["brokerIP1"] for it in files} == {"10.0.0.5"}
