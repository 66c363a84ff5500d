"""What pages say of gRPC is what there is, and a broker without it has none of it."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from grpc_calls import fronted
from page_tables import section
from roquet.acl.files import AclConfig
from roquet.auth.config import AuthConfig
from roquet.base.config import settings
from roquet.cli.servers.proxy import ProxyFlags, rules_of
from roquet.proxy.cluster.config import ClusterConfig
from roquet.proxy.rules.java_keys import WITHOUT_EFFECT, WITHOUT_EFFECT_IN_CLUSTER
from roquet.proxy.rules.limits import ProxyLimits
from roquet.testing.java import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

_LOADED = """
import sys
import roquet.broker.app, roquet.cli.servers.serve, roquet.cli.servers.dev
print(*(name for name in sys.modules if name.startswith(("roquet.proxy", "google"))))
"""


def test_page_of_metrics_has_what_the_front_shows(tmp_path: Path) -> None:
    async def main() -> bytes:
        async with fronted(tmp_path) as calls:
            return calls.broker.local.metrics.render()

    shown = re.findall(
        r"^# TYPE (roquet_grpc_\w+) (\w+)", asyncio.run(main()).decode(), re.MULTILINE
    )
    assert dict(shown) == section("reference/metrics.md", "gRPC")
    assert len(shown) == 4


def test_guide_has_each_setting_with_its_default() -> None:
    rules = ProxyLimits()
    wanted: dict[str, str] = {}
    for path, about, _ in settings(ProxyLimits):
        value = getattr(rules, path[0])
        text = f"{value:,}" if isinstance(value, int) else str(value) or "none"
        text = str(value).lower() if isinstance(value, bool) else text
        wanted[about.java] = f"{text} {about.unit}".strip()
    assert section("guide/grpc.md", "Settings") == wanted


def test_broker_without_the_front_imports_none_of_it() -> None:
    command = [sys.executable, "-c", _LOADED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_dev_serves_grpc_where_it_is_asked_to(tmp_path: Path) -> None:
    ports = ["--port", "0", "--namesrv-port", "0", "--grpc-port", "0"]
    command = [sys.executable, "-m", "roquet", "dev", "--data", str(tmp_path), "--proxy", *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = next((line for line in server.stdout if line.startswith("gRPC on ")), "")
        server.terminate()
        assert re.fullmatch(r"gRPC on 127\.0\.0\.1:[1-9][0-9]*\n", found)
        server.communicate(timeout=120)
        assert server.returncode == 0


def test_flags_of_the_front_are_refused_without_it() -> None:
    command = [sys.executable, "-m", "roquet", "broker", "--grpc-port", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "--proxy, which is not given" in done.stderr


def test_guide_has_each_key_without_effect_with_its_reason() -> None:
    text = (REPOSITORY / "docs" / "guide" / "grpc.md").read_text()
    table = text.partition("## Settings of RocketMQ without effect\n")[2].partition("\n## ")[0]
    shown: dict[str, str] = {}
    for line in table.splitlines():
        if line.startswith("| ") and "`" in line:
            why, keys = line.strip("| ").split(" | ")
            shown |= dict.fromkeys(re.findall(r"`(\w+)`", keys), why)
    assert shown == WITHOUT_EFFECT


def test_guide_has_what_differs_before_a_cluster() -> None:
    text = (REPOSITORY / "docs" / "guide" / "grpc.md").read_text()
    page = text.partition("## Before a cluster\n")[2].partition("\n## ")[0]
    tables = page.partition("| why | keys |\n")
    mine = {about.java: about.doc for _, about, _ in settings(ClusterConfig)}
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|", tables[0], re.MULTILINE)
    assert dict(rows) == mine
    shown: dict[str, str] = {}
    for line in tables[2].splitlines():
        if line.startswith("| ") and "`" in line:
            why, keys = line.strip("| ").split(" | ")
            shown |= dict.fromkeys(re.findall(r"`(\w+)`", keys), why)
    assert WITHOUT_EFFECT_IN_CLUSTER.keys() == WITHOUT_EFFECT.keys()
    assert shown == {
        key: why
        for key, why in WITHOUT_EFFECT_IN_CLUSTER.items()
        if why != WITHOUT_EFFECT[key] and key not in mine
    }


def test_keys_of_a_file_are_obeyed_named_as_idle_or_named_as_unknown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text('{"userPropertyMaxNum": 7, "proxyMode": "LOCAL", "userPropertyMaxNun": 8}')
    with caplog.at_level(logging.INFO, "roquet"):
        rules = rules_of(ProxyFlags(file), AclConfig(), AuthConfig())
    assert rules.properties_max == 7
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "unknown settings ignored: userPropertyMaxNun (did you mean userPropertyMaxNum?)",
        f"proxyMode has no effect here: {WITHOUT_EFFECT['proxyMode']}",
    ]
