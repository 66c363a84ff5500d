"""Every request code with an empty or a wrong request, on one connection to a broker that runs."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play
from remoting_harness import until
from roquet.base.clock import SystemClock
from roquet.broker.network.routes import DECLINED
from roquet.model.subscription import SubscriptionData
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData, decode_consumer_ids
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import BINARY, Command
from roquet.remoting.client import Client
from roquet.remoting.router import Route

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.remoting.router import Request
    from roquet.testing.cluster import Cluster


NUMBERS = (
    *("queueId", "offset", "queueOffset", "maxMsgNums", "maxMsgNum", "invisibleTime", "pollTime"),
    *("bornTime", "bornTimestamp", "initMode", "popShareQueueNum", "sysFlag", "flag", "timestamp"),
)
WRONG = {
    **dict.fromkeys(NUMBERS, "1e3"),
    **dict.fromkeys(("topic", "consumerGroup", "group", "producerGroup"), "\x00/"),
    **dict.fromkeys(("extraInfo", "recallHandle", "exp", "mode", "liteTopic", "clientId"), "\x02"),
    **dict.fromkeys(("order", "suspend", "expType", "attemptId", "nobodyKnowsThis"), "-1"),
}
"""Fields of pops, acknowledgements, timers and light topics with values that they cannot have."""


@pytest.mark.parametrize("encoding", [0, BINARY])
@pytest.mark.parametrize("fields", [None, {}, WRONG], ids=["none", "empty", "wrong"])
def test_empty_or_wrong_request_of_any_code_is_answered(
    tmp_path: Path, encoding: int, fields: dict[str, str] | None
) -> None:
    async def tell(it: Cluster) -> None:
        connection = await it.client.connect(it.address)
        for code in RequestCode:
            answer = await it.call(Command(code, fields, encoding=encoding))
            assert (answer.code == 3) == (code in DECLINED), (code, answer.remark)
            assert answer.code == 0 or answer.remark, code
        assert connection.is_open
        assert await it.client.connect(it.address) is connection
        assert (await it.send("orders")).code == 0

    play(tmp_path, tell)


def test_306_expired_units_go_and_the_first_offset_rises(tmp_path: Path) -> None:
    async def fill(it: Cluster) -> None:
        for number in range(40):
            assert (await it.send("orders", b"%03d" % number + b"x" * 60_000)).code == 0
        await dispatched(it)

    async def tell(it: Cluster) -> None:
        root = tmp_path / "broker-a"
        first, second, *_ = sorted((root / "commitlog").iterdir())
        units = root / "consumequeue" / "orders" / "0"
        assert min(path.name for path in units.iterdir()) == "0" * 20
        os.utime(first, (1, 1))
        assert (await it.call(Command(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, {}))).code == 0
        where = {"topic": "orders", "queueId": "0"}
        async with asyncio.timeout(60):
            while min(path.name for path in units.iterdir()) == "0" * 20:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert not first.exists()
        assert second.exists()
        begin = int(ext(await it.call(Command(RequestCode.GET_MIN_OFFSET, where)))["offset"])
        assert 10 < begin < 20
        end = ext(await it.call(Command(RequestCode.GET_MAX_OFFSET, where)))["offset"]
        assert end == "40"
        assert ext(await it.pull("orders", 0))["nextBeginOffset"] == str(begin)

    # A stop brings the units of the queue to the disk, a start finds them there.
    play(tmp_path, fill, mappedFileSizeConsumeQueue="100")
    play(tmp_path, tell, mappedFileSizeConsumeQueue="100")


def test_35_a_client_takes_its_leave_and_the_others_hear_of_it(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        heard: list[str] = []

        def hear(request: Request) -> None:
            heard.append(ext(request.command)["consumerGroup"])

        stays = Client(
            clock=SystemClock(),
            handlers=[Route((RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,), hear, "notices")],
        )
        await stays.start()
        wanted = (SubscriptionData(topic="orders", version=1),)

        async def beat(client: Client, name: str) -> None:
            groups = (ConsumerData(group="g", subscriptions=wanted),)
            data = HeartbeatData(client_id=name, consumers=groups, producers=("p",))
            command = Command(RequestCode.HEART_BEAT, {}, data.encode())
            assert (await client.call(it.address, command, 20.0)).code == 0

        async def members() -> list[str]:
            asked = Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
            return decode_consumer_ids((await stays.call(it.address, asked, 20.0)).body)

        try:
            await beat(stays, "stays")
            await beat(it.client, "leaves")
            assert await members() == ["stays", "leaves"]
            await until(lambda: len(heard) == 2, 60)
            leave = {"clientID": "leaves", "producerGroup": "p", "consumerGroup": "g"}
            answer = await it.call(Command(RequestCode.UNREGISTER_CLIENT, leave))
            assert answer.code == 0
            assert await members() == ["stays"]
            await until(lambda: heard == ["g", "g", "g"], 60)
            # Its connection stays, and a second leave is no mistake.
            assert (await it.call(Command(RequestCode.UNREGISTER_CLIENT, leave))).code == 0
            makers = Command(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p"})
            shown = (await it.call(makers)).body
            assert b'"stays"' in shown
            assert b'"leaves"' not in shown
            nobody = await it.call(Command(RequestCode.UNREGISTER_CLIENT, {}))
            assert nobody.code == 1
        finally:
            await stays.stop()

    play(tmp_path, tell)
