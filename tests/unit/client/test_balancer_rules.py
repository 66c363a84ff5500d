"""A member's share: what it asks, what it does while brokers do not know it, and what it raises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from remoting_harness import on_loop
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.client._queues.balancer import Balancer
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, QueueData, TopicRoute
from roquet.protocol.codes import ResponseCode
from roquet.remoting.refusals import refused

QUEUES = [MessageQueue("t", name, number) for name in "ab" for number in range(2)]
FORBIDDEN = refused(ResponseCode.SYSTEM_ERROR, "Check signature failed for accessKey=k")


class World:
    """Brokers a and b, whose answer to who is in the group the test gives."""

    def __init__(self, answer: list[str] | Exception, *, broadcast: bool = False) -> None:
        self.answer = answer
        self.did: list[object] = []
        self.refusals: dict[str, Refused] = {}
        self.route = TopicRoute(
            queues=tuple(
                QueueData(broker_name=name, read_queues=2, write_queues=2, perm=6) for name in "ab"
            ),
            brokers=(
                BrokerData(cluster="c", broker_name="b", addresses={0: "b:1"}),
                BrokerData(cluster="c", broker_name="a", addresses={0: "a:1"}),
                BrokerData(cluster="c", broker_name="empty", addresses={}),
            ),
        )
        session = SimpleNamespace(
            route=self._route,
            book=SimpleNamespace(forget=lambda topic: self.did.append(("forget", topic))),
            beat_new=lambda: self._did("beat new"),
            beat=lambda: self._did("beat"),
            heartbeat_refusals=self.refusals,
            members=SimpleNamespace(client_id="me"),
        )
        calls = SimpleNamespace(client_ids=self._client_ids, pull_nothing=self._pull_nothing)
        rng = SimpleNamespace(choice=self._choice)
        parts: list[Any] = [session, calls]
        self.it = Balancer(parts[0], parts[1], "g", cast("Any", rng), broadcast=broadcast)

    async def _route(self, topic: str) -> TopicRoute:
        assert topic == "t"
        return self.route

    async def _did(self, what: object) -> None:
        self.did.append(what)

    def _choice(self, names: list[str]) -> str:
        assert names == ["a", "b"], "brokers that can be reached, in order"
        return names[-1]

    async def _client_ids(self, group: str, broker: str) -> list[str]:
        self.did.append((group, broker))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def _pull_nothing(self, group: str, queue: MessageQueue) -> None:
        self.did.append((group, queue))


@pytest.mark.parametrize(
    ("members", "share", "has_others"),
    [(["me"], QUEUES, False), (["me", "you"], QUEUES[:2], True), (["an", "me"], QUEUES[2:], True)],
)
@on_loop
async def test_member_gets_its_share_after_its_heartbeat(
    members: list[str], share: list[MessageQueue], *, has_others: bool
) -> None:
    it = World(members)
    assert await it.it.share("t") == tuple(share)
    assert it.it.has_others is has_others
    assert it.did == ["beat new", ("g", "b")]


@pytest.mark.parametrize("answer", [[], ["you"], Refused(ResponseCode.SYSTEM_ERROR, "no group")])
@on_loop
async def test_member_that_brokers_do_not_list_beats_again_and_keeps_what_it_has(
    answer: list[str] | Exception,
) -> None:
    it = World(answer)
    it.it.has_others = True
    assert await it.it.share("t") is None
    assert it.did == ["beat new", ("g", "b"), "beat"]
    assert it.it.has_others


@pytest.mark.parametrize(
    "fault",
    [
        Refused(ResponseCode.NO_PERMISSION, "no"),
        FORBIDDEN,
        Unreachable("away"),
        OutcomeUnknown("no answer"),
    ],
)
@on_loop
async def test_what_cannot_heal_or_is_no_answer_is_raised(fault: Exception) -> None:
    with pytest.raises(type(fault)):
        await World(fault).it.share("t")


@on_loop
async def test_refused_heartbeat_is_raised_when_it_cannot_heal() -> None:
    it = World(["me"])
    it.refusals["a"] = Refused(ResponseCode.SYSTEM_BUSY, "busy")
    assert await it.it.share("t") == tuple(QUEUES)
    it.refusals["b"] = FORBIDDEN
    with pytest.raises(Refused, match="signature"):
        await it.it.share("t")


@on_loop
async def test_broadcasting_member_has_all_and_asks_nobody() -> None:
    it = World(["you"], broadcast=True)
    assert await it.it.share("t") == tuple(QUEUES)
    assert it.did == ["beat new"]


@pytest.mark.parametrize("lacks", ["queues", "brokers"])
@on_loop
async def test_topic_without_queue_or_broker_is_forgotten_and_asked_for_anew(lacks: str) -> None:
    it = World(["me"])
    whole = it.route
    it.route = TopicRoute(
        queues=() if lacks == "queues" else whole.queues,
        brokers=() if lacks == "brokers" else whole.brokers,
    )
    with pytest.raises(Unreachable, match="no queue"):
        await it.it.share("t")
    assert it.did == [("forget", "t")]
    it.did.clear()
    await it.it.try_pull("t")
    assert it.did == ([] if lacks == "queues" else [("g", QUEUES[0])])
