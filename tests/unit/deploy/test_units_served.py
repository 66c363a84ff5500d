"""The path of `docs/guide/production.md`: its files, then what the systemd units run."""

from __future__ import annotations

import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli_harness import environment, roquet
from roquet.testing.java import free_port

ROOT = Path(__file__).parents[3]
UNITS = ROOT / "deploy/systemd"
NEEDS_ROOT = ("cp ", "useradd ", "install ", "chown ", "systemctl ")
"""Commands of the guide that change the machine; the test's user owns its folders."""


class Machine:
    """The guide's machine below a folder: its block is typed, its units are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        (folder / "etc").mkdir()
        (folder / "lib").mkdir()
        page = (ROOT / "docs/guide/production.md").read_text()
        (block,) = re.findall(r"^```\n(useradd .*?)^```", page, re.DOTALL | re.MULTILINE)
        rows = [row for row in block.splitlines() if not row.startswith(NEEDS_ROOT)]
        self.doctor = next(row for row in rows if " doctor " in row)
        script = self.moved("\n".join(row for row in rows if row != self.doctor))
        subprocess.run(["bash", "-e", "-c", script], check=True, timeout=120)
        with (folder / "etc/broker-a.conf").open("a") as file:
            file.write("listenPort=0\nbindAddress=127.0.0.1\nmappedFileSizeCommitLog=1048576\n")
        with (folder / "etc/namesrv.conf").open("a") as file:
            file.write("bindAddress=127.0.0.1\n")

    def moved(self, text: str) -> str:
        text = text.replace("/etc/roquet", str(self.folder / "etc"))
        text = text.replace("/var/lib/roquet", str(self.folder / "lib"))
        return text.replace("9876", str(self.port))

    def start(self, unit: str) -> Service:
        """Run a unit's command as systemd does; return when it is ready."""
        text = (UNITS / unit).read_text().replace("%i", "a")
        (command,) = re.findall(r"^ExecStart=/opt/roquet/bin/roquet (.*)$", text, re.MULTILINE)
        return Service(self.folder, unit, shlex.split(self.moved(command)))


class Service:
    """A process and what it tells its supervisor."""

    def __init__(self, folder: Path, name: str, words: list[str]) -> None:
        self.told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.told.bind(str(folder / f"{name}.sock"))
        self.told.settimeout(20)
        given = {"NOTIFY_SOCKET": str(folder / f"{name}.sock"), "WATCHDOG_USEC": "200000"}
        self.child = subprocess.Popen(
            [sys.executable, "-m", "roquet", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**environment(folder / "lib"), **given},
        )

    def until(self, text: str) -> None:
        while self.told.recv(100).decode() != text:
            pass

    def stop(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        self.until("STOPPING=1")
        self.told.close()
        return self.child.wait(20)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_units_tell_systemd_and_the_guides_files_start_them(machine: Machine) -> None:
    name_server = machine.start("roquet-namesrv.service")
    try:
        name_server.until("READY=1")
        words = shlex.split(machine.moved(machine.doctor))
        doctor = roquet(machine.folder, *words[words.index("doctor") :])
        assert (doctor.returncode, doctor.stderr) == (0, ""), doctor.stdout
        broker = machine.start("roquet-broker@.service")
        try:
            for service in (name_server, broker):
                service.until("READY=1" if service is broker else "WATCHDOG=1")
                service.until("WATCHDOG=1")
                service.child.send_signal(signal.SIGHUP)
                service.until("READY=1")
                service.until("WATCHDOG=1")
        finally:
            assert broker.stop() == 0
    finally:
        assert name_server.stop() == 0
    assert (machine.folder / "lib/a/commitlog").is_dir()


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda path: path.name)
def test_unit_lets_live_changes_write_and_reloads(unit: Path) -> None:
    rows = [row.partition("=") for row in unit.read_text().splitlines() if "=" in row]
    settings = {key: value for key, _, value in rows if not key.startswith("#")}
    assert settings["Type"] == "notify"
    assert int(settings["WatchdogSec"]) >= 30
    assert settings["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert settings["ProtectSystem"] == "strict"
    assert set(settings["ReadWritePaths"].split()) == {"/var/lib/roquet", "/etc/roquet"}
