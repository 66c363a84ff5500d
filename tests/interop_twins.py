"""Two clusters of one shape, ours and Java's, that see nothing of each other."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from interop_world import messages, our_broker, our_name_server, registered, until
from roquet.testing.java import BrokerPlan, free_port, java_broker, java_name_server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from roquet.testing.java import Driver, Process

CLUSTER = "Twins"
BROKER = "twin-a"
TOPIC = "Orders"
GROUP = "orders_group"
"""Has consumed TOPIC; nobody of it is connected."""
ONLINE = "online_group"
"""Has one Java consumer that stays."""
MAKERS = "makers"
"""Producer group with one member that stays."""

MASKS = (
    (re.compile(r"\b127\.0\.0\.1@\d+(#\d+)?|\b[\w.-]+@\d+#\d+"), "CLIENT"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\b[0-9A-F]{32,56}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([:,.]\d+)?"), "TIME"),
    (re.compile(r"\b1[6-9]\d{11}\b"), "TIME"),
    (re.compile(r"[\w.]+@driver-\d+"), "CLIENT"),
    (re.compile(r"@[0-9a-f]{5,8}$", re.MULTILINE), "@HASH"),
)
NUMBER = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")


@dataclasses.dataclass
class Twin:
    """One of the two clusters."""

    namesrv: str
    plan: BrokerPlan
    processes: list[Process]
    folder: Path
    facts: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    """What the arguments of commands may name: `{addr}`, `{uid}` and the like."""

    def start(self) -> None:
        for process in self.processes:
            process.start()
        until("registration", partial(registered, self.namesrv, self.plan.name))

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.kill()

    def shown(self, text: str, *, numbers: bool) -> list[str]:
        """Return the lines of an output, sorted, without what no two clusters have alike."""
        for folder in (str(self.folder), str(self.plan.store)):
            text = text.replace(folder, "FOLDER")
        for mask, word in MASKS:
            text = mask.sub(word, text)
        lines = [" ".join(line.split()) for line in text.splitlines()]
        if not numbers:
            # A client learns of its retry topic with its next look at the routes, some time.
            lines = [NUMBER.sub("N", line) for line in lines if "%RETRY%" not in line]
        return sorted(line for line in lines if line and not line.startswith("at "))


def make_twins(jars: Path, folder: Path) -> tuple[Twin, Twin]:
    """Plan both; nothing is started."""
    chance = random.Random()
    extra = {
        "brokerClusterName": CLUSTER,
        "brokerFastFailureEnable": "false",
        "timerWheelEnable": "true",
    }
    twins: list[Twin] = []
    for side in ("ours", "java"):
        home = folder / side
        ports = [free_port(chance) for _ in range(2)]
        namesrv = f"127.0.0.1:{ports[0]}"
        plan = BrokerPlan(BROKER, ports[1], namesrv, home / "store", extra)
        if side == "ours":
            servers = [
                our_name_server(home / "namesrv", ports[0]),
                our_broker(home / "broker", plan),
            ]
        else:
            servers = [
                java_name_server(jars, home / "namesrv", ports[0]),
                # A test compares the defaults of all settings.
                java_broker(jars, home / "broker", plan, as_shipped=True),
            ]
        twins.append(Twin(namesrv, plan, servers, home))
    return twins[0], twins[1]


def furnish(driver: Driver, twin: Twin) -> None:
    """Give a cluster the same topics, messages, groups and clients as the other."""
    at = ("-n", twin.namesrv, "-b", twin.plan.address)
    driver.mqadmin("updateTopic", *at, "-t", TOPIC, "-r", "4", "-w", "4")
    until("the route", lambda: TOPIC in driver.mqadmin("topicList", "-n", twin.namesrv).split())
    given: list[dict[str, Any]] = messages(12, seed=7)
    for index, one in enumerate(given):
        one["properties"] = {"shard": str(index % 4)}
    sent = driver.send(twin.namesrv, TOPIC, given, mode="ordered")
    offline = driver.stay("consumer", twin.namesrv, TOPIC, GROUP)
    until("the offsets", lambda: _is_done(driver, twin, GROUP))
    driver.leave(offline)
    online = driver.stay("consumer", twin.namesrv, TOPIC, ONLINE)
    maker = driver.stay("producer", twin.namesrv, "TBW102", MAKERS)
    until("the offsets", lambda: _is_done(driver, twin, ONLINE))
    files = twin.folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    topics = [{"topicName": f"Listed{n}", "readQueueNums": n, "writeQueueNums": n} for n in (1, 2)]
    (files / "topics.json").write_text(json.dumps(topics))
    groups = [{"groupName": f"listed_group_{n}", "retryMaxTimes": n} for n in (1, 2)]
    (files / "groups.json").write_text(json.dumps(groups))
    twin.facts = {
        "addr": twin.plan.address,
        "cluster": CLUSTER,
        "broker": BROKER,
        "topic": TOPIC,
        "group": GROUP,
        "online": ONLINE,
        "client": online,
        "makers": MAKERS,
        "uid": sent[5]["msg_id"],
        "oid": sent[5]["offset_msg_id"],
        "files": str(files),
        "ns": twin.namesrv,
        "maker": maker,
    }


def _is_done(driver: Driver, twin: Twin, group: str) -> bool:
    """Tell whether a group has committed the three messages of each queue."""
    text = driver.mqadmin("consumerProgress", "-n", twin.namesrv, "-g", group)
    rows = [line.split() for line in text.splitlines() if f" {BROKER} " in line]
    done = [row for row in rows if row[0] == TOPIC and row[3] == row[4] == "3"]
    return len(done) == 4


def arguments(words: str, facts: Mapping[str, str]) -> list[str]:
    """Return a command's words with the facts of one twin."""
    return [word.format(**facts) for word in words.split()]
