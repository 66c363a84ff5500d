"""Plugins around the store see what goes in and out, and keep the fast path away."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, properties, records
from roquet.base.config import load
from roquet.base.errors import UsageError
from roquet.base.overriding import override
from roquet.store.plugins import GROUP, Plugin, PluginConfig, find_plugins
from roquet.store.results import PutResult, PutStatus
from roquet.testing.cluster import Cluster, broker_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from roquet.store.plugins import StoreDoor
    from roquet.store.results import Draft, Found

STORY: list[str] = []


class Stamping(Plugin):
    """Writes a property into each message, refuses some, and keeps a diary."""

    def __init__(self, inner: StoreDoor, settings: Mapping[str, str | int | bool]) -> None:
        super().__init__(inner)
        assert str(settings["storePathRootDir"]).endswith("broker-a")

    @override
    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        if draft.body == b"refuse me":
            return PutResult(PutStatus.MESSAGE_ILLEGAL, why="the plugin says no")
        draft.properties["stamp"] = "seen"
        return await self.inner.put(draft, wait=wait)

    @override
    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        STORY.append(f"query {key}")
        return self.inner.query(topic, key, max_messages, begin, end)

    @override
    async def start(self) -> None:
        await self.inner.start()
        STORY.append("stamping starts")

    @override
    async def stop(self) -> None:
        STORY.append("stamping stops")
        await self.inner.stop()


class Outer(Plugin):
    def __init__(self, inner: StoreDoor, settings: Mapping[str, str | int | bool]) -> None:
        super().__init__(inner)
        del settings

    @override
    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        assert "stamp" not in draft.properties
        return await self.inner.put(draft, wait=wait)

    @override
    async def start(self) -> None:
        await self.inner.start()
        STORY.append("outer starts")


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with two plugins, as pip would."""
    site = tmp_path_factory.mktemp("site")
    about = site / "stamps-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stamps\nVersion: 1\n")
    here = "keep_plugins_of_a_test"
    (about / "entry_points.txt").write_text(
        f"[{GROUP}]\nstamping = {here}:Stamping\nouter = {here}:Outer\n"
    )
    (site / f"{here}.py").write_text("Stamping = None\nOuter = None\n")
    monkeypatch.syspath_prepend(str(site))
    module = importlib.import_module(here)
    monkeypatch.setattr(module, "Stamping", Stamping)
    monkeypatch.setattr(module, "Outer", Outer)
    STORY.clear()


def test_a_chain_sees_every_message_and_may_refuse_one(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", b"first", properties="KEYS\x01k\x02")).code == 0
        refused = await it.send("orders", b"refuse me")
        assert refused.code == 13
        for _ in range(50):
            assert (await it.send("orders", b"more")).code == 0
        await dispatched(it)
        found = records(await it.pull("orders"))
        assert {properties(record)["stamp"] for record in found} == {"seen"}
        assert it.broker.store.query("orders", "k", 1, 0, 2**62).records

    play(tmp_path, tell, messageStorePlugIn="outer, stamping")
    assert STORY == ["stamping starts", "outer starts", "query k", "stamping stops"]


def test_a_plugin_that_is_not_installed_is_named(tmp_path: Path) -> None:
    rules, _ = load(PluginConfig, {"messageStorePlugIn": "nobody"}, {}, {})
    with pytest.raises(UsageError, match=r"messageStorePlugIn = 'nobody'.*outer.*stamping"):
        find_plugins(rules)
    config = broker_config(tmp_path)
    assert not find_plugins(dataclasses.replace(config.plugins))
    assert importlib.metadata.entry_points(group=GROUP).names == {"outer", "stamping"}
