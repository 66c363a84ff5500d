"""Registration with several name servers of which some are away."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from roquet.base.errors import Unreachable
from roquet.broker.network.registration import Registration, RegistrationConfig
from roquet.broker.state import BrokerState, Identity
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.stats import encode_kv_table
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import VERSION, Command, reply_to
from roquet.protocol.registration.body import RegisterBody, crc32_of
from roquet.store.tables.files import JsonFile
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import running_broker, running_name_server

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from roquet.namesrv.app import NameServer

ONE, TWO, AWAY = "10.0.0.1:9876", "10.0.0.2:9876", "10.0.0.3:9876"


class NameServers:
    def __init__(self) -> None:
        self.seen: list[tuple[str, Command]] = []
        self.code = 0
        self.body = b""
        self.changed = "false"
        self.stuck = False
        self.asked = 0
        self.away = {AWAY}
        self.keys: dict[str, int] = {}
        """By address, the connection that is open."""
        self.gate = asyncio.Event()
        self.gate.set()

    async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        assert timeout_s <= 24
        if address in self.away:
            self.keys.pop(address, None)
            raise Unreachable("nobody there")
        self.keys.setdefault(address, len(self.keys))
        if self.stuck and address == TWO:
            await asyncio.sleep(3600)
        if command.code == RequestCode.QUERY_DATA_VERSION:
            self.asked += not self.gate.is_set()
            await self.gate.wait()
        self.seen.append((address, command))
        if command.code == RequestCode.QUERY_DATA_VERSION:
            return reply_to(command, ext={"changed": self.changed})
        return reply_to(command, self.code, body=self.body, ext={})

    def key_of(self, address: str) -> int | None:
        return self.keys.get(address)

    def take(self) -> list[tuple[str, int]]:
        seen, self.seen = self.seen, []
        return sorted((address, command.code) for address, command in seen)


class Story:
    def __init__(
        self, folder: Path, addresses: str = f"{ONE};{TWO};{AWAY}", **rules: bool | int
    ) -> None:
        self.servers = NameServers()
        self.results: list[str | None] = []
        self.clock = clock = FakeClock()
        self.topics = TopicTable(JsonFile(folder / "topics.json"), TopicTableConfig(), clock)
        self.state = BrokerState()
        self.registration = Registration(
            caller=self.servers,
            identity=Identity(
                cluster="C",
                name="b",
                broker_id=0,
                ip="10.1.0.1",
                ha_ip="10.2.0.1",
                port=10911,
                ha_port=10912,
            ),
            topics=self.topics,
            state=self.state,
            rules=RegistrationConfig(name_servers=addresses, **rules),  # type: ignore[arg-type]
            clock=clock,
            on_result=self.results.append,
        )
        self.topics.listen(self.registration.topics_changed)

    def body(self) -> RegisterBody:
        command = self.servers.seen[-1][1]
        assert command.ext is not None
        assert command.ext["bodyCrc32"] == str(crc32_of(command.body))
        compressed = command.ext["compressed"] == "true"
        return RegisterBody.decode(command.body, VERSION, compressed=compressed)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_every_name_server_is_told_and_the_missing_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell() -> None:
        story = Story(tmp_path)
        await story.registration.start()
        assert set(story.body().table.topics) == set(story.topics.all())
        ext = story.servers.seen[0][1].ext
        assert ext is not None
        assert (ext["brokerAddr"], ext["haServerAddr"]) == ("10.1.0.1:10911", "10.2.0.1:10912")
        assert story.servers.take() == [(ONE, 103), (TWO, 103)]
        assert story.results == [None]
        assert [r.getMessage() for r in caplog.records] == [
            f"could not register with {AWAY} (nobody there)"
        ]
        await story.registration.stop()
        assert story.servers.take() == [(ONE, 104), (TWO, 104)]
        await story.registration.register()
        story.topics.put(TopicConfig(name="late"))
        await settle()
        assert story.servers.take() == []

    asyncio.run(tell())


def test_a_stuck_name_server_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async def tell() -> None:
        story = Story(tmp_path, timeout_ms=50)
        story.servers.stuck = True
        await story.registration.start()
        assert story.servers.take() == [(ONE, 103)]
        assert story.results == [None]

    asyncio.run(tell())


def test_a_stop_during_a_round_is_the_last_that_is_said(tmp_path: Path) -> None:
    async def tell() -> None:
        story = Story(tmp_path, f"{ONE};{TWO}", force=False)
        story.servers.changed = "true"
        await story.registration.start()
        story.servers.take()
        story.servers.gate.clear()
        round_ = asyncio.create_task(story.registration.register())
        await settle()
        assert story.servers.asked == 2, "both were asked whether there is news"
        await story.registration.stop()
        assert story.servers.take() == [(ONE, 104), (TWO, 104)]
        story.servers.gate.set()
        await round_
        assert story.servers.take() == [(ONE, 322), (TWO, 322)], "answers, and no 103"

    asyncio.run(tell())


def test_no_answer_at_all_is_reported(tmp_path: Path) -> None:
    async def tell() -> None:
        story = Story(tmp_path, AWAY)
        await story.registration.start()
        assert story.results == ["no name server took the registration"]
        refused = Story(tmp_path, ONE)
        refused.servers.code = 1
        await refused.registration.start()
        assert refused.results == ["no name server took the registration"]
        nobody = Story(tmp_path, "")
        await nobody.registration.start()
        assert nobody.results == [None]

    asyncio.run(tell())


def test_a_change_is_told_with_only_the_topics_it_is_about(tmp_path: Path) -> None:
    async def tell() -> None:
        story = Story(tmp_path, ONE)
        await story.registration.start()
        story.servers.take()
        story.topics.put(TopicConfig(name="orders"))
        story.topics.put(TopicConfig(name="bills"))
        await settle()
        assert set(story.body().table.topics) == {"orders", "bills"}
        assert story.body().table.version == story.topics.version
        assert story.servers.take() == [(ONE, 103)]
        story.topics.remove("orders")
        await settle()
        assert set(story.body().table.topics) == set(story.topics.all())

    asyncio.run(tell())


def test_the_brokers_permission_masks_its_topics(tmp_path: Path) -> None:
    async def tell() -> None:
        story = Story(tmp_path, ONE, compressed=True)
        story.state.permission = 4
        await story.registration.start()
        perms = {name: it.perm for name, it in story.body().table.topics.items()}
        assert perms["TBW102"] == 4
        assert set(perms.values()) == {4, 0}

    asyncio.run(tell())


def test_many_topics_are_encoded_in_a_thread_once_for_all_name_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def encode(body: RegisterBody, *, compressed: bool) -> bytes:
        threads.append(threading.current_thread())
        return plain(body, compressed=compressed)

    plain = RegisterBody.encode
    monkeypatch.setattr(RegisterBody, "encode", encode)

    async def tell() -> None:
        story = Story(tmp_path, f"{ONE};{TWO}")
        story.topics.put(*(TopicConfig(name=f"t{number}") for number in range(2_000)))
        await story.registration.start()
        assert set(story.body().table.topics) == set(story.topics.all())
        assert story.servers.take() == [(ONE, 103), (TWO, 103)]
        await story.registration.register()
        assert len(threads) == 1
        assert threads[0] is not threading.main_thread()
        story.state.permission = 4
        story.servers.take()
        story.topics.put(TopicConfig(name="new"))
        story.topics.touch()
        async with asyncio.timeout(60):
            while len(story.servers.seen) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        # That all have changed is not forgotten beside the one that was named.
        assert set(story.body().table.topics) == set(story.topics.all())
        assert {it.perm for it in story.body().table.topics.values()} == {4, 0}
        assert story.body().table.version == story.topics.version
        await story.registration.stop()

    asyncio.run(tell())


def test_without_force_only_news_is_registered(tmp_path: Path) -> None:
    async def tell() -> None:
        story = Story(tmp_path, ONE, force=False)
        await story.registration.start()
        assert story.servers.take() == [(ONE, 322)]
        story.servers.changed = "true"
        await story.registration.register()
        assert story.servers.take() == [(ONE, 103), (ONE, 322)]

    asyncio.run(tell())


def test_ordered_topics_are_learnt(tmp_path: Path) -> None:
    async def tell() -> None:
        story = Story(tmp_path, ONE)
        story.topics.put(TopicConfig(name="orders"))
        story.servers.body = encode_kv_table({"orders": "b:4", "unknown": "b:1"})
        await story.registration.start()
        config = story.topics.get("orders")
        assert config is not None
        assert config.order

    asyncio.run(tell())


def test_a_name_server_that_restarts_is_told_within_a_second(tmp_path: Path) -> None:
    async def tell() -> None:
        story = Story(tmp_path, f"{ONE};{TWO}")
        await story.registration.start()
        story.servers.take()
        await story.registration.register_again()
        assert story.servers.take() == [], "both know the broker"
        story.servers.keys[TWO] = 99
        await story.registration.register_again()
        assert story.servers.take() == [(TWO, 103)], "by a connection that somebody else made"
        del story.servers.keys[ONE]
        await story.registration.register_again()
        assert story.servers.take() == [(ONE, 103)]
        await story.registration.stop()
        story.servers.take()
        story.servers.keys.clear()
        await story.registration.register_again()
        assert story.servers.take() == [], "nothing after the goodbye"

    asyncio.run(tell())


def test_a_name_server_that_is_away_is_tried_less_and_less_often(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell() -> None:
        story = Story(tmp_path, AWAY)
        await story.registration.start()
        caplog.clear()
        tries: list[int] = []
        call = story.servers.call

        async def noted(address: str, command: Command, timeout_s: float = 3.0) -> Command:
            tries.append(second)
            return await call(address, command, timeout_s)

        story.servers.call = noted  # type: ignore[method-assign]
        for second in range(50):  # noqa: B007 - `noted` reads it
            await story.registration.register_again()
            await story.clock.advance(1)
        assert tries == [0, 1, 3, 7, 15, 31, 47]
        assert not caplog.records, "each round says who is missing; a second's look does not"
        story.servers.away.clear()
        await story.clock.advance(16)
        await story.registration.register_again()
        assert story.servers.take() == [(AWAY, 103)]
        assert story.results == ["no name server took the registration", None]

    asyncio.run(tell())


def test_the_topics_of_a_broker_are_back_soon_after_its_name_server(tmp_path: Path) -> None:
    def served(server: NameServer) -> bool:
        return any("TBW102" in it.topics for it in server.table.served().values())

    async def tell() -> None:
        async with running_name_server(tmp_path / "n") as first:
            port = str(first.server.port)
            broker = running_broker(tmp_path / "b", f"127.0.0.1:{port}")
            await broker.__aenter__()
        try:
            async with running_name_server(tmp_path / "n", {"listenPort": port}) as second:
                began = asyncio.get_running_loop().time()
                while not served(second):
                    assert asyncio.get_running_loop().time() < began + 9, "the round is at 10 s"
                    await asyncio.sleep(0.05)
        finally:
            await broker.__aexit__(None, None, None)

    asyncio.run(tell())
