"""What the jobs of `tools.pages.screenshots` look at, made for it and the same each time."""

from __future__ import annotations

import math
import random
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from demo.flights import departures

from roquet import roquet_native as native
from roquet.protocol import names
from roquet.spark.schema import COLUMNS, ddl

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

BEGIN: Final = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECONDS: Final = 60
FLIGHTS: Final = 40_000
HOSTS: Final = (21, 22, 23)
SNAPSHOTS: Final = (
    "at timestamp, `group` string, topic string, brokerName string, queueId int, offset bigint,"
    " minOffset bigint, maxOffset bigint, `lag` bigint, clientId string"
)
# Messages a second of each queue that a group consumes; 50 come.
_GROUPS: Final = {"billing": (50, 50, 50, 50), "search": (50, 50, 12, 50), "mail": (60, 60, 60, 0)}
_STEPS: Final = 90
# Group, topic, cause, letters, and the hours between which they died.
_DEAD: Final = (
    ("billing", "orders", "card refused", 140, 0.0, 6.0),
    ("billing", "orders", "bank does not answer", 420, 2.0, 2.6),
    ("mail", "orders", "no such address", 90, 0.0, 6.0),
    ("mail", "invoices", "mailbox is full", 35, 3.0, 5.0),
    ("search", "products", "no such language", 60, 4.5, 6.0),
)
_TRACED: Final = 6_000
_STORY: Final = 3_333
STORY_KEY: Final = f"order-{_STORY}"


def flights(folder: Path) -> None:
    """Write a store of flights by carrier, more and fewer of them as time goes by."""
    chance = random.Random(7)
    store = native.Store.open({"storePathRootDir": str(folder), "mappedFileSizeCommitLog": 1 << 28})
    store.start()
    known = departures(FLIGHTS)
    sent, begin = 0, time.monotonic()
    while (gone := time.monotonic() - begin) < SECONDS:
        wave = gone / SECONDS - 0.04 * math.sin(gone / 3)
        while sent < min(len(known), int(len(known) * max(0.0, wave))):
            it = known[sent]
            key = "" if it.key is None else f"KEYS\x01{it.key}\x02"
            late = int(chance.lognormvariate(1.2, 0.7))
            store.put(
                "departures",
                ord(it.tag[0]) % 8,
                it.body,
                f"{key}TAGS\x01{it.tag}\x02UNIQ_KEY\x01{sent:032X}\x02".encode(),
                born_timestamp=int(datetime.now(UTC).timestamp() * 1000) - late,
                born_host=bytes([10, 0, 0, chance.choice(HOSTS), 0, 0, 156, 64]),
            )
            sent += 1
        time.sleep(0.01)
    store.close()


def snapshots() -> list[tuple[object, ...]]:
    """Return rows of `SNAPSHOTS`: three groups, a deploy, a slow queue and one that stands."""
    rows: list[tuple[object, ...]] = []
    for group, rates in _GROUPS.items():
        for queue, rate in enumerate(rates):
            offset = 1000 * (queue + 1)
            end = offset + 2000
            for step in range(_STEPS):
                at = BEGIN + timedelta(seconds=10 * step)
                client = f"{group}-{queue % 2}"
                place = (at, group, "orders", "broker-a", queue)
                rows.append((*place, offset, 0, end, end - offset, client))
                end += 500
                # A deploy stops everything for a while.
                halted = 30 <= step < 38
                offset = min(end, offset + (0 if halted else 10 * rate * 13 // 10))
    return rows


def dead_letters(spark: SparkSession, folder: Path) -> tuple[str, str]:
    """Write dead letters, and the originals that are still there, as Parquet; return both."""
    chance = random.Random(11)
    dead: list[tuple[object, ...]] = []
    found: list[tuple[object, ...]] = []
    for group, topic, cause, count, first, last in _DEAD:
        for _ in range(count):
            died = BEGIN + timedelta(hours=chance.uniform(first, last))
            born = died - timedelta(seconds=chance.lognormvariate(9.3, 0.4))
            number = len(dead)
            user = {"error": cause, "RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": f"{number:032X}"}
            body = f'{{"id": {40_000 + number}, "customer": {chance.randint(1, 900)}}}'.encode()
            given = {
                "brokerName": "broker-a",
                "queueId": 0,
                "queueOffset": number,
                "msgId": f"{number:032X}",
                "uniqKey": f"{number:032X}",
                "keys": f"order-{40_000 + number}",
                "tags": chance.choice(("web", "shop", "phone")),
                "bornTimestamp": born,
                "sysFlag": 0,
                "bodyCRC": number,
                "body": body,
            }
            gone = {"topic": names.dlq_topic(group), "properties": user, "reconsumeTimes": 17}
            dead.append(_row({**given, **gone, "storeTimestamp": died}))
            if chance.random() < 0.8:
                found.append(_row({**given, "topic": topic, "storeTimestamp": born}))
    folders = str(folder / "dead"), str(folder / "originals")
    for place, rows in zip(folders, (dead, found), strict=True):
        spark.createDataFrame(rows, ddl()).coalesce(1).write.parquet(place)
    return folders


def traces(folder: Path) -> None:
    """Write a store with what clients traced: two consumer groups, one with a slow host."""
    chance = random.Random(13)
    store = native.Store.open({"storePathRootDir": str(folder), "mappedFileSizeCommitLog": 1 << 26})
    store.start()
    for number in range(_TRACED):
        for host, records in _traced(chance, number):
            body = "".join("\x01".join(map(str, it)) + "\x02" for it in records).encode()
            born = bytes([10, 0, 0, host, 0, 0, 156, 64])
            store.put(names.TRACE_TOPIC, 0, body, b"", born_host=born)
    store.close()


# --- inside --------------------------------------------------------------------------------------


def _row(values: dict[str, object]) -> tuple[object, ...]:
    return tuple(values.get(name) for name in COLUMNS)


def _traced(chance: random.Random, number: int) -> list[tuple[int, list[tuple[object, ...]]]]:
    """Return what each host wrote about one message."""
    sent = int(BEGIN.timestamp() * 1000) + number * 600 + chance.randint(0, 400)
    unique, key, cost = f"{number:032X}", f"order-{number}", chance.randint(1, 4)
    pub = ("Pub", sent, "R", "shop", "orders", unique, "web", key, "10.0.0.1:10911")
    made: list[tuple[int, list[tuple[object, ...]]]] = [
        (chance.choice(HOSTS), [(*pub, 180, cost, 0, f"OID{number}", "true")])
    ]
    for group, hosts, typical in (("billing", (31, 32, 33), 2.6), ("mail", (41,), 3.4)):
        host = chance.choice(hosts)
        # The third host of billing has a slow disk, and at noon and a half everybody waits.
        slow = 1.4 if host == 33 else 0.0
        slow += max(0.0, 1.5 - abs(number - _TRACED / 2) / 300)
        at = sent + cost + int(chance.lognormvariate(1.0 + slow, 0.6))
        fails = 2 if (number, group) == (_STORY, "billing") else int(chance.random() < 0.01)
        for turn in range(fails + 1):
            took = int(chance.lognormvariate(typical, 0.5))
            good, code = turn == fails, "0" if turn == fails else chance.choice("124")
            request = f"{group}-{number}-{turn}"
            before = ("SubBefore", at, "R", group, request, unique, turn, key)
            ended = ("SubAfter", request, unique, took, str(good).lower(), key, code)
            made.append((host, [before, (*ended, at + took, group)]))
            at += took + (10_000 if turn == 0 else 30_000) + chance.randint(0, 90)
    return made
