"""Plugins as installed packages: hooks on sends, pulls and all requests of a real broker."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from broker_harness import dispatched, play, records
from roquet.base.errors import UsageError
from roquet.broker import app as broker_app
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.cluster import broker_config, pull_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from roquet.testing.cluster import Cluster

PLUGIN = """
from roquet.base.errors import Refused
from roquet.broker.api.refusal import Reason, Refusal

seen = []


class Sends:
    def before_send(self, context):
        seen.append(("before_send", context))
        if context.properties.get("forbidden"):
            raise Refused(16, "the plugin says no")
        if context.properties.get("limited"):
            raise Refusal(Reason.RATE_LIMITED, "not so often")
        if context.properties.get("broken"):
            raise RuntimeError("a mistake of the plugin")

    def after_send(self, context, outcome):
        seen.append(("after_send", context, outcome))
        if context.properties.get("broken"):
            raise RuntimeError("another")


class Pulls:
    def before_consume(self, context):
        if context.consumer_group == "spies":
            raise Refused(16, "not for spies")

    def after_consume(self, context, outcome):
        seen.append(("after_consume", context, outcome))


class Calls:
    def before_request(self, peer, request):
        seen.append(("before_request", peer, request.code))

    def after_response(self, peer, request, response):
        seen.append(("after_response", peer, request.code, response and response.code))


class Bad:
    def __init__(self):
        raise ValueError("cannot be made")


class Misspelt(Sends):
    before_send = None

    def beforeSend(self, context):
        pass


class Waits(Pulls):
    async def before_consume(self, context):
        pass
"""


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    """Install a package with the entry points given, as pip would."""
    site = tmp_path / "site"

    def install_(entry_points: str) -> list[tuple[Any, ...]]:
        folder = site / "a_plugin-1.0.dist-info"
        folder.mkdir(parents=True)
        (site / "a_plugin.py").write_text(PLUGIN)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: a-plugin\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(entry_points)
        monkeypatch.syspath_prepend(str(site))
        importlib.invalidate_caches()
        found: list[tuple[Any, ...]] = importlib.import_module("a_plugin").seen
        return found

    yield install_
    sys.modules.pop("a_plugin", None)


def test_a_send_hook_sees_every_message_and_may_refuse_it(
    tmp_path: Path, install: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    seen = install("[roquet.send_hooks]\naudit = a_plugin:Sends\n")

    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", b"hello", properties="TAGS\x01a\x02")).code == 0
        (_, context), (_, after, outcome) = seen
        assert after == context
        assert (context.topic, context.queue_id, context.producer_group) == ("orders", 0, "testers")
        assert (context.properties, context.body_size) == ({"TAGS": "a"}, 5)
        assert (outcome.code, outcome.queue_offset) == (0, 0)
        assert len(outcome.message_id) == 32
        seen.clear()
        refused = await it.send("orders", properties="forbidden\x011\x02")
        assert (refused.code, refused.remark) == (16, "the plugin says no")
        assert refused.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        limited = await it.send("orders", properties="limited\x011\x02")
        assert (limited.code, limited.remark, limited.ext) == (215, "not so often", refused.ext)
        seen.clear()
        # A mistake of a plugin is no reason to lose a message.
        assert (await it.send("orders", b"kept", properties="broken\x011\x02")).code == 0
        illegal = await it.send("orders", queue_id=99)
        assert seen[-1][2].code == illegal.code == 29
        await dispatched(it)
        assert [one.body for one in records(await it.pull("orders"))] == [b"hello", b"kept"]
        assert it.broker.path.native.counters()["sends"] == 0

    play(tmp_path, tell)


def test_a_consume_hook_sees_pulls_also_those_that_were_held(
    tmp_path: Path, install: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    seen = install("[roquet.consume_hooks]\naudit = a_plugin:Pulls\n")

    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", b"hello")).code == 0
        await dispatched(it)
        (found,) = records(await it.pull("orders"))
        assert seen[0][1].consumer_group == "readers"
        assert (seen[0][2].code, seen[0][2].messages_size) == (0, found.size)
        refused = await it.pull("orders", consumerGroup="spies")
        assert (refused.code, refused.remark) == (16, "not for spies")
        seen.clear()
        held = asyncio.create_task(
            it.call(pull_command("orders", 1, sysFlag="6", suspendTimeoutMillis="15000"))
        )
        while it.broker.metadata.offsets.pulled("readers", "orders", 0) != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (await it.send("orders", b"second")).code == 0
        assert len(records(await held)) == 1
        assert [one[2].code for one in seen] == [0]

    play(tmp_path, tell)


def test_an_rpc_hook_sees_every_request(
    tmp_path: Path, install: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    seen = install("[roquet.rpc_hooks]\naudit = a_plugin:Calls\n")

    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", b"hello")).code == 0
        wrong = Command(RequestCode.GET_MAX_OFFSET, ext={"topic": "orders"})
        assert (await it.call(wrong)).code == 1
        sends = [one for one in seen if one[2] == RequestCode.SEND_MESSAGE_V2]
        assert [one[0] for one in sends] == ["before_request", "after_response"]
        assert sends[1][3] == 0
        others = [one for one in seen if one[2] == RequestCode.GET_MAX_OFFSET]
        assert [one[0] for one in others] == ["before_request", "after_response"]

    play(tmp_path, tell)


def test_a_plugin_that_cannot_be_made_keeps_the_broker_from_starting(
    tmp_path: Path, install: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    install("[roquet.send_hooks]\naudit = a_plugin:Bad\n")
    with pytest.raises(UsageError, match=r"plugin audit of roquet.send_hooks .*cannot be made"):
        broker_app.build(broker_config(tmp_path))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("send_hooks]\naudit = a_plugin:Misspelt", "it has no method before_send; it needs"),
        ("consume_hooks]\naudit = a_plugin:Waits", "before_consume is a coroutine"),
        ("rpc_hooks]\naudit = a_plugin:Sends", "it has no method before_request"),
    ],
)
def test_a_plugin_that_would_never_be_asked_keeps_the_broker_from_starting(
    tmp_path: Path, install: Callable[[str], list[tuple[Any, ...]]], entry: str, why: str
) -> None:
    install(f"[roquet.{entry}\n")
    with pytest.raises(UsageError, match=why):
        broker_app.build(broker_config(tmp_path))


def test_without_plugins_nothing_is_around_the_handlers(tmp_path: Path) -> None:
    broker = broker_app.build(broker_config(tmp_path))
    names = {getattr(route.handler, "__qualname__", "") for route in broker.routes}
    assert "SendAdapter.send" in names
    assert not any("_around" in name for name in names)
