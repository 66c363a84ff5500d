"""Zones of brokers, and brokers that are told who of their name is the lowest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from namesrv_harness import Asker, looped, serving
from roquet.model.data_version import DataVersion
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.routes import decode_route
from roquet.protocol.bodies.topics import TopicTableBody
from roquet.protocol.headers.broker import NotifyMinBrokerIdChangeRequest
from roquet.protocol.registration.body import RegisterBody
from roquet.remoting.codec import decode

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.protocol.command import Command


async def register(asker: Asker, name: str, broker_id: int, address: str, **more: str) -> Command:
    body = RegisterBody(
        table=TopicTableBody(
            topics={topic: TopicConfig(name=topic) for topic in ("T", "U")},
            version=DataVersion(timestamp=7, counter=3),
        ),
        filter_servers=(f"{address}0",),
    )
    ext = {
        "brokerName": name,
        "brokerAddr": address,
        "clusterName": "c1",
        "haServerAddr": address.replace(":", ":1"),
        "brokerId": str(broker_id),
        **more,
    }
    answer = await asker.ask(103, ext, body.encode())
    assert answer.code == 0, answer.remark
    return answer


class Told:
    """A broker's port that keeps what it is told."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[NotifyMinBrokerIdChangeRequest] = asyncio.Queue()
        self._server: asyncio.Server | None = None

    async def listen(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        partial = bytearray()
        while chunk := await reader.read(65_536):
            partial += chunk
            commands, used = decode(partial, 1 << 24)
            del partial[:used]
            for command in commands:
                assert command.code == 905
                assert command.is_one_way
                self.heard.put_nowait(NotifyMinBrokerIdChangeRequest.decode(command.ext))
        writer.close()

    async def next(self) -> NotifyMinBrokerIdChangeRequest:
        return await asyncio.wait_for(self.heard.get(), 20)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


@looped
async def test_a_client_that_names_its_zone_sees_the_brokers_of_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        zones = {"__ZONE_NAME": "north"}
        await register(asker, "near", 0, "10.0.0.1:10911", **zones)
        await register(asker, "far", 0, "10.0.0.2:10911", __ZONE_NAME="south")
        await register(asker, "nowhere", 0, "10.0.0.3:10911")
        await register(asker, "headless", 1, "10.0.0.4:10911", enableActingMaster="true")
        asked = {"topic": "T", "__ZONE_MODE": "true", "__ZONE_NAME": "NORTH"}
        answer = await asker.ask(105, asked)
        route = decode_route(answer.body)
        assert {one.broker_name for one in route.brokers} == {"near", "headless"}
        assert {one.broker_name for one in route.queues} == {"near", "headless"}
        assert set(route.filter_servers) == {"10.0.0.1:10911", "10.0.0.4:10911"}
        # Rewritten answers have the form with bare numbers as keys.
        assert b'{0:"10.0.0.1:10911"}' in answer.body
        nobody = await asker.ask(105, {**asked, "topic": "T", "__ZONE_NAME": "west"})
        assert nobody.code == 0
        assert {one.broker_name for one in decode_route(nobody.body).brokers} == {"headless"}
        for without in ({"__ZONE_MODE": "true"}, {"__ZONE_NAME": "north"}):
            whole = await asker.ask(105, {"topic": "T", **without})
            assert len(decode_route(whole.body).brokers) == 4


@looped
async def test_members_are_told_when_the_lowest_id_changes(tmp_path: Path) -> None:
    master, first, second = Told(), Told(), Told()
    addresses = [await one.listen() for one in (master, first, second)]
    acting = {"enableActingMaster": "true"}
    try:
        async with serving(tmp_path, notify_min_broker_id=True, broker_port_min=1) as served:
            askers = [await served.connect() for _ in range(3)]
            await register(askers[2], "b", 2, addresses[2], **acting)
            await register(askers[1], "b", 1, addresses[1], **acting)
            heard = await second.next()
            assert (heard.min_broker_id, heard.min_broker_addr) == (1, addresses[1])
            assert heard.ha_broker_addr == addresses[1].replace(":", ":1")
            assert heard.offline_broker_addr is None
            await register(askers[0], "b", 0, addresses[0], **acting)
            assert [(await one.next()).min_broker_id for one in (first, second)] == [0, 0]
            # The same again changes nothing.
            await register(askers[0], "b", 0, addresses[0], **acting)
            askers[0].close()
            for one in (first, second):
                heard = await one.next()
                assert (heard.min_broker_id, heard.broker_name) == (1, "b")
                assert heard.offline_broker_addr == addresses[0]
            assert master.heard.empty()
    finally:
        for one in (master, first, second):
            one.close()


@looped
async def test_nobody_is_told_when_that_is_off_or_the_name_has_no_acting_master(
    tmp_path: Path,
) -> None:
    told = Told()
    address = await told.listen()
    try:
        async with serving(tmp_path, notify_min_broker_id=True, broker_port_min=1) as served:
            asker = await served.connect()
            await register(asker, "b", 1, address)
            await register(asker, "b", 0, "10.0.0.1:10911")
            body = b"notifyMinBrokerIdChanged=false\n"
            assert (await asker.ask(318, body=body)).code == 0
            await register(asker, "c", 1, address, enableActingMaster="true")
            await register(asker, "c", 0, "10.0.0.2:10911", enableActingMaster="true")
            # Whatever had been sent would have come before this.
            assert (await asker.ask(318, body=body.replace(b"false", b"true"))).code == 0
            await register(asker, "d", 2, address, enableActingMaster="true")
            await register(asker, "d", 1, "10.0.0.3:10911", enableActingMaster="true")
            assert (await told.next()).broker_name == "d"
    finally:
        told.close()


@looped
async def test_lowest_slave_is_shown_as_a_read_only_master_where_that_is_switched_on(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        for broker_id in (2, 1):
            address = f"10.0.0.{broker_id}:10911"
            await register(asker, "b", broker_id, address, enableActingMaster="true")

        async def shown() -> dict[int, str]:
            route = decode_route((await asker.ask(105, {"topic": "T"})).body)
            (broker,) = route.brokers
            return dict(broker.addresses)

        assert await shown() == {1: "10.0.0.1:10911", 2: "10.0.0.2:10911"}
        assert (await asker.ask(318, body=b"supportActingMaster=true\n")).code == 0
        assert await shown() == {0: "10.0.0.1:10911", 2: "10.0.0.2:10911"}
