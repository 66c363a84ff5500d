"""What administration does about brokers and name servers that do not answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from roquet.admin import Admin
from roquet.admin.calls import tell_name_servers
from roquet.base.errors import NotFound, OutcomeUnknown, Refused, Unreachable
from roquet.cli.reach import Watched
from roquet.model.route import BrokerData, QueueData, TopicRoute
from roquet.protocol.bodies.routes import ClusterInfo
from roquet.protocol.bodies.topics import encode_topic_list
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.errors import RoquetError


class Forbidden(Refused):
    """A refusal with its text alone."""

    def __init__(self, text: str) -> None:
        super().__init__(1, text)


class Cluster:
    """Two masters, a and b, and two name servers; `away` are addresses that do not answer."""

    left_out: Callable[[str, RoquetError], None] | None = None

    def __init__(self, *away: str, error: type[RoquetError] = Unreachable) -> None:
        self.clock = FakeClock()
        self.name_servers = ("n1", "n2")
        self.away = away
        self.error = error
        self.asked: list[tuple[str, int]] = []
        self.brokers = [
            BrokerData(cluster="c", broker_name=name, addresses={0: f"{name}:1"}) for name in "ab"
        ]

    async def ask(self, address: str, command: Command) -> Command:
        self.asked.append((address, command.code))
        if address in self.away:
            raise self.error(f"{address} is away")
        if command.code == RequestCode.QUERY_TOPICS_BY_CONSUMER:
            return Command(0, body=encode_topic_list([f"t-{address[0]}"]))
        return Command(0)

    async def ask_name_server(self, command: Command) -> Command:
        assert command.code == RequestCode.GET_BROKER_CLUSTER_INFO
        brokers = {it.broker_name: it for it in self.brokers}
        return Command(
            0, body=ClusterInfo(brokers=brokers, clusters={"c": frozenset({"a", "b"})}).encode()
        )

    async def route(self, topic: str) -> TopicRoute:
        del topic
        queues = tuple(QueueData(broker_name=name, read_queues=1, write_queues=1) for name in "ab")
        return TopicRoute(queues=queues, brokers=tuple(self.brokers))

    def forget_topic(self, topic: str) -> None:
        del topic


@pytest.mark.parametrize("error", [Unreachable, OutcomeUnknown])
def test_look_at_brokers_shows_those_that_answer_and_names_the_other(
    error: type[RoquetError], capsys: pytest.CaptureFixture[str]
) -> None:
    it = Cluster("b:1", error=error)
    with pytest.raises(error):
        asyncio.run(Admin(it).groups.topics("g"))
    watched = Watched(it)
    assert asyncio.run(Admin(watched).groups.topics("g")) == ["t-a"]
    assert asyncio.run(Admin(watched).groups.topics("g")) == ["t-a"]
    assert list(watched.away) == ["b"]
    assert capsys.readouterr().err == "roquet: b is left out: b:1 is away\n"


def test_look_at_brokers_of_which_none_answers_fails() -> None:
    watched = Watched(Cluster("a:1", "b:1"))
    with pytest.raises(Unreachable, match="a:1 is away"):
        asyncio.run(Admin(watched).groups.topics("g"))
    assert watched.away == {}


def test_change_stops_at_a_broker_that_is_away() -> None:
    it = Cluster("a:1")
    with pytest.raises(Unreachable, match="a:1 is away"):
        asyncio.run(Admin(Watched(it)).groups.put("g"))
    assert [address for address, _ in it.asked] == ["a:1"]


@pytest.mark.parametrize("away", ["n1", "n2"])
def test_all_name_servers_are_told_whichever_is_away(away: str) -> None:
    it = Cluster(away)
    with pytest.raises(Unreachable, match=f"done at 1 name servers, but not at {away}"):
        asyncio.run(tell_name_servers(it, Command(1)))
    assert [address for address, _ in it.asked] == ["n1", "n2"]
    it = Cluster("n1", "n2")
    with pytest.raises(Unreachable, match=r"^n1 is away$"):
        asyncio.run(tell_name_servers(it, Command(1)))


def test_topic_that_one_name_server_did_not_hear_of_is_deleted_everywhere_else() -> None:
    it = Cluster("n1")
    with pytest.raises(Unreachable, match="not at n1"):
        asyncio.run(Admin(it).topics.delete("t"))
    told = [address for address, code in it.asked if code == RequestCode.DELETE_TOPIC_IN_NAMESRV]
    assert told == ["n1", "n2"]


def test_refusal_of_a_broker_is_raised() -> None:
    it = Cluster("a:1", error=Forbidden)
    with pytest.raises(Refused, match="a:1"):
        asyncio.run(Admin(Watched(it)).groups.topics("g"))


def test_broker_without_master_is_left_out_of_changes_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    it = Cluster()
    it.brokers[1] = BrokerData(cluster="c", broker_name="b", addresses={1: "b:2"})
    watched = Watched(it)
    asyncio.run(Admin(watched).accounts.delete("ann"))
    assert {address for address, _ in it.asked} == {"a:1"}
    assert capsys.readouterr().err == "roquet: b is left out: has no master now\n"
    assert list(watched.away) == ["b"]
    with pytest.raises(NotFound, match="the broker b has no master now"):
        asyncio.run(Admin(watched).brokers.runtime("b"))
    it.brokers.pop(0)
    with pytest.raises(NotFound, match="no master broker is registered at n1;n2"):
        asyncio.run(Admin(watched).accounts.delete("ann"))
