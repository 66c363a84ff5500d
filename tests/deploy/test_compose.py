"""The compose file: its services' own command lines and health checks, run as processes."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cli_harness import Running, environment, roquet
from roquet.testing.cluster import TINY

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy/compose/compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ORDER = ("namesrv", "broker-a", "broker-a-slave", "console")
READY_WITHIN_S = 30.0
HOSTS = "127.57.0."
"""Each container's address is one of loopback, so that ports can be those of the file."""


def address(name: str) -> str:
    given = SERVICES[name]["networks"]["cluster"]["ipv4_address"]
    assert isinstance(given, str)
    return given


def moved(word: str, name: str, home: Path) -> str:
    """Return a word of a service's command as it is on this machine."""
    own = address(name).replace("172.30.57.", HOSTS)
    word = word.replace("172.30.57.", HOSTS).replace("0.0.0.0", own)
    return word.replace("/var/lib/roquet", str(home / name))


def check(name: str, home: Path) -> int:
    """Run a service's health check; return its exit code."""
    _, program, *words = SERVICES[name]["healthcheck"]["test"]
    assert program == "python"
    own = address(name).replace("172.30.57.", HOSTS)
    line = [sys.executable, *[word.replace("127.0.0.1", own) for word in words]]
    done = subprocess.run(line, check=False, capture_output=True, timeout=10, env=environment(home))
    return done.returncode


@contextlib.contextmanager
def running(home: Path) -> Iterator[dict[str, Running]]:
    """Start the services in order, each when those it depends on are healthy."""
    started: dict[str, Running] = {}
    try:
        for name in ORDER:
            assert set(SERVICES[name].get("depends_on", ())) <= set(started)
            (home / name).mkdir()
            words = [moved(word, name, home) for word in SERVICES[name]["command"]]
            if words[0] == "broker":
                # Before the file's own settings: the last of a key counts.
                words[1:1] = [f"-s={key}={value}" for key, value in TINY.items()]
            elif words[0] == "console":
                # The check names it 127.0.0.1 in the container, and its own address here.
                words += ["--host", address(name).replace("172.30.57.", HOSTS)]
            started[name] = Running(home / name, *words)
            until = time.monotonic() + READY_WITHIN_S
            while check(name, home) != 0:
                assert started[name].child.poll() is None, (home / name / "errors").read_text()
                assert time.monotonic() < until, f"{name} is not healthy"
        yield started
    finally:
        assert {name: it.stop() for name, it in reversed(started.items())} == dict.fromkeys(
            started, 0
        )


@pytest.mark.timeout(240)
def test_services_of_compose_file_are_healthy_and_take_a_message(tmp_path: Path) -> None:
    name_server = f"{HOSTS}10:9876"
    with running(tmp_path) as started:
        sent = roquet(tmp_path, "pub", "hello", "first message", "-n", name_server)
        assert (sent.returncode, sent.stderr) == (0, "")
        read = roquet(tmp_path, "cat", "hello", "-e", "-n", name_server)
        assert "first message" in read.stdout
        shown = roquet(tmp_path, "ha", "status", "-o", "json", "-n", name_server)
        assert shown.returncode == 0, shown.stderr
        assert "in sync" in shown.stdout
        # A broker that stops is unhealthy: the check can fail.
        started["broker-a-slave"].stop()
        assert check("broker-a-slave", tmp_path) == 1


def test_every_service_runs_without_rights_and_limits_what_it_takes() -> None:
    assert set(SERVICES) == set(ORDER)
    for name, service in SERVICES.items():
        assert service["image"] == "${ROQUET_IMAGE:-roquet:latest}", name
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["mem_limit"]
        assert "user" not in service, "the image's user is not root"
        assert "privileged" not in service


def test_what_is_published_is_on_loopback_and_volumes_are_declared() -> None:
    for name, service in SERVICES.items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        for volume in service.get("volumes", ()):
            assert volume.split(":")[0] in COMPOSE["volumes"], name


def test_addresses_are_the_networks_and_each_is_given_once() -> None:
    ((config,),) = [COMPOSE["networks"]["cluster"]["ipam"]["config"]]
    network = ipaddress.ip_network(config["subnet"])
    given = [address(name) for name in ORDER]
    assert len({*given, config["gateway"]}) == len(given) + 1
    assert all(ipaddress.ip_address(each) in network for each in given)
    for name in ("broker-a", "broker-a-slave"):
        assert f"-s=brokerIP1={address(name)}" in SERVICES[name]["command"]
    words = SERVICES["console"]["command"]
    assert words[words.index("--proxy") + 1] == config["gateway"]


@pytest.mark.parametrize("name", ["broker-a", "broker-a-slave"])
def test_store_is_on_a_volume(name: str) -> None:
    (folder,) = [volume.split(":")[1] for volume in SERVICES[name]["volumes"]]
    stores = [word for word in SERVICES[name]["command"] if "storePathRootDir=" in word]
    assert json.dumps(stores).count(f"storePathRootDir={folder}/") == 1
