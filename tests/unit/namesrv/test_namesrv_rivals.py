"""Two living brokers of one name and id: the name server and the brokers say so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from namesrv_harness import Asker, looped, serving
from roquet.model.data_version import DataVersion
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.topics import TopicTableBody, encode_data_version
from roquet.protocol.registration.body import RegisterBody
from roquet.testing.cluster import running_broker, running_name_server

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from roquet.protocol.command import Command

ONE, TWO = "10.0.0.1:10911", "10.0.0.2:10911"


def named(**changes: str) -> dict[str, str]:
    fields = {"brokerName": "a", "clusterName": "c", "brokerId": "0", "haServerAddr": ""}
    return fields | changes


async def register(asker: Asker, **changes: str) -> Command:
    topics = {name: TopicConfig(name=name, read_queues=4, write_queues=4) for name in "TU"}
    body = RegisterBody(table=TopicTableBody(topics=topics, version=DataVersion()))
    return await asker.ask(103, named(**changes), body.encode())


@looped
async def test_registration_of_a_name_that_a_living_broker_has_carries_a_remark(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        first, second = await served.connect(), await served.connect()
        assert (await register(first, brokerAddr=ONE)).remark is None
        assert (await register(first, brokerAddr=ONE)).remark is None, "the same one again"
        assert (await register(first, brokerAddr=TWO, brokerId="1")).remark is None, "its slave"
        assert (await register(second, brokerAddr=TWO, brokerName="b")).remark is None
        answer = await register(second, brokerAddr="10.0.0.3:10911")
        assert (answer.code, ONE in (answer.remark or "")) == (0, True)
        version = encode_data_version(DataVersion())
        asked = await first.ask(322, named(brokerAddr=ONE), version)
        assert "10.0.0.3:10911" in (asked.remark or ""), "the one that was there is told as well"
        await second.ask(104, named(brokerAddr="10.0.0.3:10911"))
        assert (await register(first, brokerAddr=ONE)).remark is None, "alone again"


def test_two_brokers_of_one_name_are_said_in_the_logs_of_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def lines(logger: str) -> list[str]:
        return [it.getMessage() for it in caplog.records if it.name == logger]

    async def tell() -> None:
        async with running_name_server(tmp_path / "n") as server:
            at = f"127.0.0.1:{server.server.port}"
            async with running_broker(tmp_path / "a", at) as first:
                assert not lines("roquet.broker.network.registration")
                async with running_broker(tmp_path / "b", at) as second:
                    both = [it.identity.address for it in (first, second)]
        for logger in ("roquet.namesrv.registration", "roquet.broker.network.registration"):
            (said, *_) = [it for it in lines(logger) if "are both broker" in it]
            assert all(address in said for address in both)

    asyncio.run(tell())
