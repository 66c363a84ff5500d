"""The rules of the route tables, told as stories, and what holds after any history."""

from __future__ import annotations

import copy
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import Refused
from roquet.model.data_version import DataVersion
from roquet.model.route import QueueData
from roquet.model.topic import TopicConfig
from roquet.namesrv import table as table_module
from roquet.namesrv import views
from roquet.namesrv.table import BrokerKey, Departure, Registration, RouteTable
from roquet.protocol.bodies.fields import at_once

if TYPE_CHECKING:
    from collections.abc import Callable

STORIES = Path(__file__).with_name("stories.txt")
BROKER = re.compile(r"(?P<cluster>\w+)/(?P<name>\w+)(:(?P<id>\d+))?@(?P<address>[\w:]+)")


def stories() -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in STORIES.read_text().splitlines():
        if line.startswith("story "):
            found.append((line[6:], []))
        elif line.strip() and not line.startswith("#"):
            found[-1][1].append(line.strip())
    return found


def topic_config(name: str, text: str) -> TopicConfig:
    read, write, perm = map(int, text.split("/"))
    return TopicConfig(name=name, read_queues=read, write_queues=write, perm=perm)


class Teller:
    """Carries a story's steps out on one table."""

    def __init__(self) -> None:
        self.table = RouteTable()
        self.now_ms = 1_000_000
        self.steps: dict[str, Callable[[list[str]], str]] = {
            "register": self.register,
            "route": lambda words: self.route(words[0], acting=False),
            "acting-route": lambda words: self.route(words[0], acting=True),
            "clusters": self.clusters,
            "leave": self.leave,
            "known": self.known,
            "beat": self.beat,
            "silent": self.silent,
            "closed": self.closed,
            "wipe": lambda words: str(at_once(self.table.wipe_write_perm(words[0]))),
            "add": lambda words: str(at_once(self.table.add_write_perm(words[0]))),
            "delete": self.delete,
            "topic": self.topic,
            "system": self.system,
            "topics-of": self.topics_of,
        }

    def tell(self, line: str) -> None:
        if line == "drop-absent-topics":
            self.table.drop_absent_topics = True
            return
        if line.startswith("wait "):
            self.now_ms += int(line[5:])
            return
        step, _, expected = line.partition(" -> ")
        verb, *words = step.split()
        assert self.steps[verb](words) == expected, line

    def register(self, words: list[str]) -> str:
        broker = BROKER.fullmatch(words[0])
        assert broker is not None
        given = dict(word.split("=", 1) for word in words[1:])
        topics = dict(text.split("=") for text in given["topics"].split(",") if text)
        state, counter = map(int, given["v"].split("."))
        said = Registration(
            cluster=broker["cluster"],
            name=broker["name"],
            broker_id=int(broker["id"]),
            address=broker["address"],
            ha_address=given.get("ha", "-"),
            version=DataVersion(state_version=state, timestamp=1, counter=counter),
            topics={name: topic_config(name, text) for name, text in topics.items()},
            timeout_ms=int(given["timeout"]) if "timeout" in given else None,
            acting_master={"true": True, "false": False, "-": None}[given.get("acting", "-")],
        )
        try:
            answer = self.table.register(said, self.now_ms, int(given.get("ch", "1")))
        except Refused as refusal:
            return f"code {refusal.code}"
        if answer is None:
            return "refused"
        if answer.master_address is None:
            return "ok"
        return f"ok ha={answer.ha_address} master={answer.master_address}"

    def route(self, topic: str, *, acting: bool) -> str:
        found = views.route(self.table, topic, acting_master=acting)
        if found is None:
            return "none"
        queues = {queue.broker_name: queue for queue in found.queues}
        shown: list[str] = []
        for broker in sorted(found.brokers, key=lambda b: b.broker_name):
            queue = queues[broker.broker_name]
            addresses = ",".join(f"{key}={at}" for key, at in sorted(broker.addresses.items()))
            numbers = f"{queue.read_queues}/{queue.write_queues}/{int(queue.perm)}"
            shown.append(f"{broker.broker_name}{{{addresses}}} {numbers}")
        return " ".join(shown)

    def clusters(self, _: list[str]) -> str:
        found = views.clusters(self.table).clusters
        return " ".join(f"{name}[{','.join(sorted(found[name]))}]" for name in sorted(found)) or "-"

    def leave(self, words: list[str]) -> str:
        broker = BROKER.fullmatch(words[0])
        assert broker is not None
        channel = int(words[1].removeprefix("ch=")) if len(words) > 1 else None
        self.table.depart(
            [Departure(broker["cluster"], broker["name"], broker["address"], channel)], self.now_ms
        )
        return "ok"

    def known(self, words: list[str]) -> str:
        return "no" if self.table.version_of(self.key(words)) is None else "yes"

    def beat(self, words: list[str]) -> str:
        self.table.touch(self.key(words), self.now_ms)
        return "ok"

    def key(self, words: list[str]) -> BrokerKey:
        cluster, _, address = words[0].partition("@")
        return BrokerKey(cluster, address)

    def silent(self, _: list[str]) -> str:
        gone = self.table.silent(self.now_ms)
        return " ".join(f"{d.cluster}/{d.name}@{d.address} ch={d.channel}" for d in gone) or "-"

    def closed(self, words: list[str]) -> str:
        self.table.depart(self.table.on_channel(int(words[0])), self.now_ms)
        return "ok"

    def delete(self, words: list[str]) -> str:
        self.table.delete_topic(words[0], words[1] if len(words) > 1 else None)
        return "ok"

    def topic(self, words: list[str]) -> str:
        queues: list[QueueData] = []
        for word in words[1:]:
            name, _, text = word.partition("=")
            read, write, perm = map(int, text.split("/"))
            queues.append(
                QueueData(broker_name=name, read_queues=read, write_queues=write, perm=perm)
            )
        self.table.register_topic(words[0], queues)
        return "ok"

    def system(self, _: list[str]) -> str:
        found = views.system_names(self.table)
        return f"{' '.join(found.names)} at {found.broker_address}"

    def topics_of(self, words: list[str]) -> str:
        return (
            " ".join(sorted(views.topics_of_cluster(self.table, words[0], self.table.topics)))
            or "-"
        )


@pytest.mark.parametrize(("title", "lines"), [pytest.param(*s, id=s[0]) for s in stories()])
def test_story(title: str, lines: list[str]) -> None:
    assert any(" -> " in line for line in lines), title
    teller = Teller()
    for line in lines:
        teller.tell(line)


def test_units_are_told_by_the_first_brokers_flag() -> None:
    table = RouteTable()
    topics = {
        name: TopicConfig(name=name, sys_flag=flag)
        for name, flag in (("plain", 0), ("unit", 1), ("sub", 2), ("both", 3))
    }
    table.register(
        Registration(
            cluster="c",
            name="a",
            broker_id=0,
            address="h1:1",
            ha_address="",
            version=DataVersion(),
            topics=topics,
        ),
        now_ms=0,
        channel=1,
    )

    def flagged(wanted: Callable[[int], bool]) -> list[str]:
        return list(views.topics_by_flag(table, wanted, table.topics))

    assert flagged(views.is_unit) == ["unit", "both"]
    assert flagged(views.has_unit_subscribers) == [
        "sub",
        "both",
    ]
    assert flagged(views.has_unit_subscribers_only) == ["sub"]


def test_filter_servers_are_shown_by_address_until_an_empty_list_comes() -> None:
    table = RouteTable()

    def register(servers: tuple[str, ...]) -> None:
        table.register(
            Registration(
                cluster="c",
                name="a",
                broker_id=0,
                address="h1:1",
                ha_address="",
                version=DataVersion(),
                topics={"T": TopicConfig(name="T"), "U": TopicConfig(name="U")},
                filter_servers=servers,
            ),
            now_ms=0,
            channel=1,
        )

    register(("h1:70",))
    shown = views.route(table, "T")
    assert shown is not None
    assert shown.filter_servers == {"h1:1": ("h1:70",)}
    register(())
    shown = views.route(table, "T")
    assert shown is not None
    assert shown.filter_servers == {}


def test_mappings_are_replaced_when_the_version_changed() -> None:
    table = RouteTable()

    def register(counter: int, epoch: int) -> None:
        table.register(
            Registration(
                cluster="c",
                name="a",
                broker_id=0,
                address="h1:1",
                ha_address="",
                version=DataVersion(counter=counter),
                topics={"T": TopicConfig(name="T"), "U": TopicConfig(name="U")},
                mappings={"T": {"bname": "a", "epoch": epoch, "topic": "T"}},
            ),
            now_ms=0,
            channel=1,
        )

    def epoch() -> object:
        shown = views.route(table, "T")
        assert shown is not None
        assert shown.queue_mapping_by_broker is not None
        return shown.queue_mapping_by_broker["a"]["epoch"]

    register(counter=1, epoch=1)
    register(counter=1, epoch=2)
    assert epoch() == 1
    register(counter=2, epoch=3)
    assert epoch() == 3


@pytest.mark.parametrize("seed", range(40))
def test_any_history_leaves_tables_that_agree(seed: int) -> None:
    chance = random.Random(seed)
    teller = Teller()
    for _ in range(300):
        name = chance.choice("abc")
        host = f"h{chance.randrange(4)}:1"
        step = chance.random()
        if step < 0.55:
            topics = ",".join(
                f"{topic}=4/4/{chance.choice((4, 6, 7))}"
                for topic in chance.sample("TUVW", chance.randrange(5))
            )
            teller.register(
                [
                    f"c{name}/{name}:{chance.randrange(3)}@{host}",
                    f"v={chance.randrange(3)}.{chance.randrange(3)}",
                    f"topics={topics}",
                    f"acting={chance.choice(('true', 'false', '-'))}",
                    f"ch={chance.randrange(5)}",
                ]
            )
        elif step < 0.75:
            teller.leave([f"c{name}/{name}@{host}"])
        elif step < 0.85:
            teller.closed([str(chance.randrange(5))])
        elif step < 0.9:
            at_once(teller.table.wipe_write_perm(name))
        else:
            teller.now_ms += chance.randrange(50_000)
            teller.table.depart(teller.table.silent(teller.now_ms), teller.now_ms)
        check_agreement(teller.table)


@pytest.mark.parametrize("seed", range(40))
def test_table_any_refused_registration_leaves_all_tables_equal(seed: int) -> None:
    chance = random.Random(seed)
    teller = Teller()
    refused = 0
    for _ in range(200):
        before = copy.deepcopy(vars(teller.table))
        topics = ",".join(f"{topic}=4/4/6" for topic in chance.sample("TUV", chance.randrange(4)))
        name, host = chance.choice("ab"), f"h{chance.randrange(3)}:1"
        answer = teller.register(
            [
                f"{chance.choice('cd')}/{name}:{chance.randrange(3)}@{host}",
                f"v={chance.randrange(3)}.{chance.randrange(3)}",
                f"topics={topics}",
                f"acting={chance.choice(('true', 'false', '-'))}",
            ]
        )
        if not answer.startswith("ok"):
            refused += 1
            assert vars(teller.table) == before
        if chance.random() < 0.1:
            teller.leave([f"{chance.choice('cd')}/{name}@{host}"])
    assert refused > 20


@pytest.mark.parametrize(
    ("bound", "size"),
    [("MAX_BROKER_NAMES", 1), ("MAX_BROKERS", 1), ("MAX_MEMBERS", 1), ("MAX_TOPICS", 2)],
)
def test_table_full_registration_is_refused_and_known_brokers_go_on(
    bound: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, bound, size)
    teller = Teller()
    assert teller.register(["c/a:0@h1:1", "v=0.1", "topics=T=4/4/6,U=4/4/6"]) == "ok"
    before = copy.deepcopy(vars(teller.table))
    name = "a" if bound == "MAX_MEMBERS" else "b"
    assert teller.register([f"c/{name}:1@h2:1", "v=0.1", "topics=V=4/4/6,W=4/4/6"]) == "code 2"
    assert vars(teller.table) == before
    assert teller.register(["c/a:0@h1:1", "v=0.2", "topics=T=8/8/6,U=4/4/6"]) == "ok"
    assert teller.route("T", acting=False) == "a{0=h1:1} 8/8/6"


def check_agreement(table: RouteTable) -> None:
    for cluster, names in table.clusters.items():
        assert names, cluster
        assert names <= set(table.brokers)
    for name, entry in table.brokers.items():
        assert name in table.clusters[entry.cluster]
        addresses = list(entry.addresses.values())
        assert len(addresses) == len(set(addresses)), "one address has one id"
    for topic, queues in table.topics.items():
        assert queues, topic
        assert set(queues) <= set(table.brokers), "queues of a broker that nobody knows"


def test_long_registrations_and_departures_in_steps_come_to_the_same_as_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others come and go between the steps; what is left at the end is what one step makes."""

    def said(rng: random.Random, name: str, count: int) -> Registration:
        names = rng.sample(range(20), rng.randint(2, 15))
        configs = (TopicConfig(name=f"t{number}", write_queues=count) for number in names)
        return Registration(
            cluster="c",
            name=name,
            broker_id=0,
            address=f"{name}:1",
            ha_address="",
            version=DataVersion(counter=count),
            topics={config.name: config for config in configs},
        )

    def history(seed: int, rows: int) -> tuple[object, ...]:
        monkeypatch.setattr(table_module, "ROWS_AT_ONCE", rows)
        rng = random.Random(seed)
        table = RouteTable(drop_absent_topics=seed % 2 == 0)
        for count in range(12):
            name = rng.choice("ab")
            if rng.random() < 0.6:
                table.register(said(rng, name, count), count, channel=1)
            else:
                table.depart([Departure("c", name, f"{name}:1")], count)
            for _ in range(rng.randrange(4)):
                table.advance()
        while table.advance():
            pass
        shown = {topic: dict(queues) for topic, queues in table.topics.items()}
        for name in "ab":
            rows = sum(name in queues for queues in shown.values())
            assert at_once(table.wipe_write_perm(name)) == rows
        return (shown, set(table.brokers), set(table.live))

    for seed in range(300):
        assert history(seed, rows=2) == history(seed, rows=1_000), seed
