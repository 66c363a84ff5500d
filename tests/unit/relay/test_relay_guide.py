"""The blocks of the relay's guide, run as they stand."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from roquet.base.clock import SystemClock
from roquet.cli.app import parser
from roquet.relay.app import build
from roquet.relay.config import load_config
from roquet.relay.config_server import ConfigServer
from roquet.relay.servers import parse
from roquet.testing.java import free_port

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "relay.md"


def block(kind: str) -> str:
    found = re.findall(rf"^```{kind}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 1, kind
    return str(found[0])


def test_the_blocks_of_the_guide_work_together(tmp_path: Path) -> None:
    battle_port, lobby_port = free_port(), free_port()
    listed = json.loads(block("json"))
    for entry, port in zip(listed["servers"], (lobby_port, battle_port), strict=True):
        entry["port"] = port
    assert len(parse(json.dumps(listed).encode(), 10).servers) == 2
    (tmp_path / "servers.json").write_text(json.dumps(listed))
    settings = tmp_path / "relay.toml"
    settings.write_text(block("toml"))
    names: dict[str, Any] = {}
    exec(compile(block("python"), str(GUIDE), "exec"), names)

    async def run() -> bytes:
        server = ConfigServer(tmp_path / "servers.json")
        await server.start()
        flags: dict[str, str | int | bool | None] = {
            "config_url": server.url,
            "config_copy": str(tmp_path / "copy.json"),
            "http_port": 0,
            "reconnect_ms": 100,
        }
        relay = build(load_config(settings, {}, flags), SystemClock())
        try:
            async with relay.app, asyncio.timeout(30):
                return bytes(await names["play"](battle_port, lobby_port))
        finally:
            await server.stop()

    assert asyncio.run(run()) == b"moved by ann"


def test_the_command_of_the_guide_is_one(tmp_path: Path) -> None:
    del tmp_path
    (line,) = re.findall(r"^roquet (relay --demo .*)$", GUIDE.read_text(), re.MULTILINE)
    options = parser().parse_args(line.split())
    assert options.demo
