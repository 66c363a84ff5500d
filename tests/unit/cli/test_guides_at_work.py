"""Blocks of the guides about commands, settings, servers, plugins and transactions, run."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli_harness import Running, dev_server, environment, roquet
from roquet.protocol.bodies.replication import HaStatusBody
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection
from roquet.testing.cluster import TINY, send_command
from roquet.testing.pair import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
TRANSCRIPT = re.compile(r"^\$ (.*)\n((?:(?!\$).+\n)*)", re.MULTILINE)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
DRAWN = re.compile(r"\b[0-9A-F]{32}\b|(?<=queue )\d+|^\d+(?=:0 )", re.MULTILINE)
"""Ids, and the queue that the first of several messages goes to."""


def blocks(guide: str, language: str = "") -> list[str]:
    text = (GUIDE / f"{guide}.md").read_text()
    return [block for each, block in BLOCK.findall(text) if each == language]


def shell(home: Path, line: str, address: str = "") -> subprocess.CompletedProcess[str]:
    """Run a line as a shell does, with our command on its path."""
    ours = f'roquet() {{ {shlex.quote(sys.executable)} -m roquet "$@"; }}; '
    return subprocess.run(
        ["bash", "-c", ours + line],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=home,
        env={**environment(home), **({"NAMESRV_ADDR": address} if address else {})},
    )


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with dev_server(tmp_path_factory.mktemp("dev")) as (address, _):
        yield address


@pytest.mark.parametrize("guide", ["command-line", "configuration"])
def test_transcripts_show_what_commands_print(dev: str, tmp_path: Path, guide: str) -> None:
    pairs = [pair for block in blocks(guide) for pair in TRANSCRIPT.findall(block)]
    assert pairs
    for line, shown in pairs:
        done = shell(tmp_path, line, dev)
        printed = done.stdout + done.stderr
        if "jq" in line and "jq: command not found" in printed:
            assert shell(tmp_path, line.split("|")[0], dev).stdout.startswith("{"), line
            continue
        if shown:
            assert sorted(DRAWN.sub("?", printed).split("\n")) == sorted(
                DRAWN.sub("?", shown).split("\n")
            ), line


def test_group_is_moved_as_the_guide_says(tmp_path: Path) -> None:
    with dev_server(tmp_path) as (address, _):
        for line in ("pub orders x -c 4", "sub orders -g billing -c 4"):
            assert shell(tmp_path, f"roquet {line}", address).returncode == 0
        (block,) = [it for it in blocks("command-line") if "group seek" in it and "$" not in it]
        preview, seek, watch = block.strip().splitlines()
        assert "again" in shell(tmp_path, preview, address).stdout
        assert shell(tmp_path, seek, address).returncode == 0
        # It shows the lag again and again: every two seconds.
        ours = f"timeout 60 {shlex.quote(sys.executable)} -m {watch} | grep -m 2 'lag of billing: '"
        rounds = shell(tmp_path, ours, address).stdout
        assert rounds.count("lag of billing: ") >= 2
        (program,) = blocks("command-line", "python")
        (tmp_path / "main.py").write_text(program.replace("127.0.0.1:9876", address))
        done = shell(tmp_path, f"{shlex.quote(sys.executable)} main.py", address)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("->") == 4
        assert "behind by 4" in done.stdout


def test_commands_that_show_settings_end_well(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("brokerName=broker-a\n")
    lines = [line for line in blocks("configuration")[0].splitlines() if line]
    assert len(lines) == 4
    for line in lines:
        done = shell(tmp_path, line)
        assert (done.returncode, done.stderr) == (0, ""), line
        assert len(done.stdout.splitlines()) > 5, line


def test_pair_of_the_guide_acknowledges_with_both(dev: str, tmp_path: Path) -> None:
    del dev
    namesrv = Running(tmp_path, "namesrv", "-s", "listenPort=0")
    address = namesrv.lines_until("boot success")[-1].split("address ")[1].split(",")[0].strip()
    started: list[Running] = [namesrv]
    try:
        ports: dict[str, str] = {}
        for text in blocks("master-slave", "properties"):
            name = text.split()[1].rstrip(",")
            here = re.sub(r"(brokerIP1)=.*", r"\1=127.0.0.1", text)
            here = here.replace("10.0.0.1:9876", address)
            here = here.replace("/data/roquet", str(tmp_path / name[:-5]))
            (tmp_path / name).write_text(here)
        first, *lines = blocks("master-slave")[0].splitlines()
        assert first.startswith("roquet namesrv -s bindAddress=")
        for line in lines:
            changes = [word for key, value in TINY.items() for word in ("-s", f"{key}={value}")]
            words = shlex.split(line)[1:]
            more = ["-s", "listenPort=0", "-s", "haListenPort=0", "-s", "bindAddress=127.0.0.1"]
            running = Running(tmp_path, *words[:1], "-c", str(tmp_path / words[2]), *changes, *more)
            started.append(running)
            booted = running.lines_until("boot success")[-1]
            ports[words[2]] = re.findall(r"127\.0\.0\.1:\d+", booted)[0]
        with BlockingConnection(ports["master.conf"]) as connection:

            def is_copied() -> bool:
                answer = connection.call(Command(RequestCode.GET_BROKER_HA_STATUS), 10.0)
                return bool(HaStatusBody.decode(answer.body).slaves)

            wait_until("the slave is connected", is_copied, 60)
            wait_until(
                "a message is acknowledged by both",
                lambda: (
                    connection.call(send_command("pairs", b"x"), 10.0).code == ResponseCode.SUCCESS
                ),
                60,
            )
    finally:
        assert [one.stop() for one in reversed(started)] == [0] * len(started)


def test_metrics_of_the_guide_are_shown(tmp_path: Path) -> None:
    (line,) = blocks("metrics")[0].splitlines()
    command, fetch = line.split("# then: ")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    changes = {
        **TINY,
        "listenPort": "0",
        "metricsPromExporterPort": str(port),
        "storePathRootDir": str(tmp_path / "store"),
    }
    more = [word for key, value in changes.items() for word in ("-s", f"{key}={value}")]
    running = Running(tmp_path, *shlex.split(command)[1:], *more)
    try:
        running.lines_until(f":{port}")
        address = fetch.removeprefix("curl ").replace("5557", str(port))
        with urllib.request.urlopen(address, timeout=60) as page:
            assert b"\nrocketmq_storage_size" in page.read()
    finally:
        assert running.stop() == 0


def test_name_server_commands_of_the_guide_work(tmp_path: Path) -> None:
    (tmp_path / "namesrv.properties").write_text("listenPort=0\n")
    first, with_file, shown = [shlex.split(line, comments=True) for line in servers()]
    for words in (
        [*first[1:], "-s", "listenPort=0"],
        [*with_file[1:3], str(tmp_path / with_file[3])],
    ):
        running = Running(tmp_path, *words)
        assert "serializeType=JSON, address" in running.lines_until("boot success")[-1]
        assert running.stop() == 0
    done = roquet(tmp_path, *shown[1:])
    assert done.returncode == 0
    assert "listenPort=9877" in done.stdout.replace(" ", "")


def servers() -> list[str]:
    (block,) = blocks("name-server")[:1]
    return block.splitlines()


def test_plugin_of_the_guide_refuses_and_prints(tmp_path: Path) -> None:
    site = tmp_path / "site"
    about = site / "my_package-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (toml,) = blocks("plugins", "toml")
    (group, name, target) = re.findall(r'"(roquet\.\w+)"\]\n(\w+) = "(.*)"', toml)[0]
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")
    (site / "my_package.py").write_text(blocks("plugins", "python")[0])
    with dev_server(tmp_path, packages=site) as (address, running):
        refused = roquet(tmp_path, "pub", "-n", address, "orders", "x")
        assert refused.returncode == 1
        assert "a tenant is needed" in refused.stderr
        taken = roquet(tmp_path, "pub", "-n", address, "other", "x")
        assert taken.returncode == 0
        assert running.line().startswith("other 0 ")


def test_transaction_of_the_guide_is_seen_after_the_work(dev: str, tmp_path: Path) -> None:
    (block,) = blocks("transactions", "python")[:1]
    script = tmp_path / "shop.py"
    work = "paid = set()\npay, is_paid = paid.add, paid.__contains__\n\n"
    script.write_text(work + block.replace("127.0.0.1:9876", dev))
    done = shell(tmp_path, f"{shlex.quote(sys.executable)} {script}")
    assert (done.returncode, done.stderr) == (0, "")
    seen = roquet(tmp_path, "cat", "-n", dev, "orders", "-e")
    assert "order 7" in seen.stdout
