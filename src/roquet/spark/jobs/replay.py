"""The job `replay`: an archive back into topics, at least once, each message always with one key.

The lake is cut into waves, whose plan is kept; a wave that is done is noted. A run that stopped
goes on with the wave that was under way, and sends all of it again: what comes twice has the same
unique key both times, made of the run and the place that the message came from.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from roquet.base.clock import SystemClock, pause
from roquet.base.errors import UsageError
from roquet.client import connect
from roquet.spark.jobs.archiving.replay_plan import (
    Origin,
    Place,
    Wave,
    from_text,
    merged,
    places,
    to_text,
    wave_rows,
    waves,
)
from roquet.spark.jobs.lake import Lake
from roquet.spark.jobs.lake import configuration as lake_configuration
from roquet.spark.jobs.options.lake import REPLAY
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.shared.report import Report
from roquet.spark.jobs.storage.alone import alone
from roquet.spark.jobs.storage.catalog import entry
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.option_table import Given
from roquet.spark.options import SinkOptions
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from roquet.base.clock import Clock
    from roquet.spark.jobs.storage.summary import Part

DRY_RUN_READS: Final = True
"""Counting needs Spark; nothing is sent."""
RUN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_SLICES: Final = "topic string, day string, broker string, queue int, `begin` bigint, `end` bigint"

_WANTED: Final = """
select * from {rows}
where (:begin < 0 or unix_millis(storeTimestamp) >= :begin)
  and (:end < 0 or unix_millis(storeTimestamp) < :end)
  and (:keys = '' or arrays_overlap(split(trim(keys), ' +'), split(:keys, ' ')))
  and (:tags = '' or array_contains(split(:tags, '\\\\|\\\\|'), tags))"""
_COUNTS: Final = """
select topic, cast(day as string) as day, count(*) as messages,
  unix_millis(min(storeTimestamp)) as first, unix_millis(max(storeTimestamp)) as last
from {rows} group by topic, day order by topic, day"""
_OF_WAVE: Final = """
select r.* from {rows} r join {slices} s
  on r.topic = s.topic and r.day = cast(s.day as date) and r.brokerName = s.broker
  and r.queueId = s.queue and r.queueOffset >= s.`begin` and r.queueOffset < s.`end`"""
_MESSAGES: Final = """
select if(:topic = '', topic, :topic) as topic, body, keys, tags,
  map_concat(
    map_filter(properties, (name, value) -> not startswith(name, 'replay.')),
    map('replay.run', :run, 'replay.topic', topic, 'replay.broker', brokerName,
      'replay.queueId', cast(queueId as string),
      'replay.queueOffset', cast(queueOffset as string),
      'replay.msgId', coalesce(msgId, ''), 'replay.uniqKey', coalesce(uniqKey, ''),
      'replay.bornTimestamp', cast(unix_millis(bornTimestamp) as string),
      'replay.storeTimestamp', cast(unix_millis(storeTimestamp) as string))
  ) as properties,
  q.toBroker as brokerName, q.toQueue as queueId,
  upper(substr(sha2(concat_ws('/', :run, topic, brokerName, cast(queueId as string),
    cast(queueOffset as string)), 256), 1, 32))
    as uniqKey, brokerName as fromBroker, topic as fromTopic, queueId as fromQueue, queueOffset
from {rows} join {places} q
  on q.fromTopic = topic and q.fromBroker = brokerName and q.fromQueue = queueId"""
_SENT: Final = ("topic", "body", "keys", "tags", "properties", "brokerName", "queueId", "uniqKey")
_PLACES: Final = "fromTopic string, fromBroker string, fromQueue int, toBroker string, toQueue int"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options, checked."""

    lake: str
    kind: str
    servers: str
    topic: str
    topics: tuple[str, ...]
    begin_ms: int | None
    end_ms: int | None
    keys: tuple[str, ...]
    tags: tuple[str, ...]
    rate: int | None
    rows: int
    run: str
    progress: str
    metrics: str | None
    dry_run: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReplayOptions:
        """Check options. Raises UsageError."""
        given = Given(options, REPLAY)
        lake = (given.text("lake") or "").rstrip("/")
        servers, run = given.text("nameServers") or "", given.text("run") or ""
        dry = given.flag("dryRun")
        if not lake:
            raise UsageError("lake is needed: the folder that `archive` filled")
        if not dry and not servers:
            raise UsageError("nameServers is needed: the cluster that gets the messages")
        if not dry and not RUN_NAME.fullmatch(run):
            raise UsageError("run is needed: 1 to 100 letters, digits, dots, dashes, underscores")
        tags = (it.strip() for it in (given.text("tags") or "").split("||"))
        rows = given.number("waveRows")
        if servers:
            SinkOptions.parse({"nameServers": servers, "topic": given.text("topic") or "any"})
        return cls(
            lake=lake,
            kind=given.choice("format"),
            servers=servers,
            topic=given.text("topic") or "",
            topics=given.names("subscribe"),
            begin_ms=given.number("startingTimestamp"),
            end_ms=given.number("endingTimestamp"),
            keys=given.names("keys"),
            tags=tuple(it for it in tags if it),
            rate=given.number("rate"),
            rows=50_000 if rows is None else rows,
            run=run,
            progress=(given.text("progress") or f"{lake}/_replays/{run}").rstrip("/"),
            metrics=given.text("metricsPath"),
            dry_run=dry,
        )

    def plan(self) -> tuple[str, ...]:
        """Return what will be done, in lines."""
        limits = [f"{name} {value}" for name, value in self.selection().items() if value]
        target = self.topic or "the topics they came from"
        return (
            f"replay {', '.join(self.topics) or 'all topics'} of {self.lake}",
            f"to {target} at {self.servers or 'no cluster'}",
            f"only: {', '.join(limits) or 'no limit'}",
            f"at most {self.rate:,} messages a second" if self.rate else "as fast as it goes",
            f"progress is in {self.progress}",
        )

    def selection(self) -> dict[str, object]:
        """Return what chooses the messages, and so has to stay when a run goes on."""
        return {
            "topic": self.topic,
            "subscribe": list(self.topics),
            "startingTimestamp": self.begin_ms,
            "endingTimestamp": self.end_ms,
            "keys": list(self.keys),
            "tags": list(self.tags),
        }

    def has(self, part: Part) -> bool:
        """Whether a part may have wanted messages."""
        if self.topics and part.topic not in self.topics:
            return False
        after = self.begin_ms is None or part.day >= _day(self.begin_ms)
        return after and (self.end_ms is None or part.day <= _day(self.end_ms))

    def narrow(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        """Return the wanted rows."""
        arguments = {
            "begin": -1 if self.begin_ms is None else self.begin_ms,
            "end": -1 if self.end_ms is None else self.end_ms,
            "keys": " ".join(self.keys),
            "tags": "||".join(self.tags),
        }
        return sql(spark, _WANTED, arguments, rows=rows)


def plan(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `run` would do with these options. Raises UsageError."""
    return ReplayOptions.parse(options).plan()


def configuration(options: Mapping[str, str]) -> dict[str, str]:
    """Return what the session needs. Raises UsageError."""
    return lake_configuration(ReplayOptions.parse(options).kind)


def run(
    spark: SparkSession,
    options: Mapping[str, str],
    say: Callable[[str], None],
    clock: Clock | None = None,
    wait: Callable[[float], None] = pause,
) -> Report:
    """Send what is wanted and not yet sent by this run; with `dryRun` count it.

    Raises UsageError, LakeError, and what Spark raises for rows that could not be sent.
    """
    wanted = ReplayOptions.parse(options)
    register(spark)
    lake = Lake(spark, wanted.lake, wanted.kind)
    lake.schema()
    if wanted.dry_run:
        return _counted(spark, lake, wanted)
    job = Replay(lake, wanted, say, clock or SystemClock(), wait)
    with alone(lake.files, wanted.progress):
        job.run()
    return Report((f"{job.sent:,} messages sent in {job.done:,} waves",), (wanted.progress,))


class Replay:
    """One run of waves."""

    def __init__(
        self,
        lake: Lake,
        wanted: ReplayOptions,
        say: Callable[[str], None],
        clock: Clock,
        wait: Callable[[float], None],
    ) -> None:
        """Count from zero."""
        self._lake = lake
        self._wanted = wanted
        self._say = say
        self._clock = clock
        self._wait = wait
        self._begun = clock.now_ms()
        self.sent = 0
        self.done = 0

    def run(self) -> None:
        """Send all waves that are not noted as done."""
        planned = self._plan()
        folder = f"{self._wanted.progress}/done"
        first = len([it for it in self._lake.files.names(folder) if it.endswith(".json")])
        if first:
            self._say(f"{first:,} of {len(planned):,} waves were done before")
        places = self._places({it.origin for wave in planned[first:] for it in wave})
        for number in range(first, len(planned)):
            count = self._send(planned[number], places)
            self.sent += count
            self.done += 1
            note = f'{{"sent": {count}}}\n'
            self._lake.files.write_new(f"{folder}/{number:09}.json", note)
            self._tell(len(planned) - number - 1)
            self._slow_down()

    def _plan(self) -> list[Wave]:
        wanted, files = self._wanted, self._lake.files
        path = f"{wanted.progress}/plan.json"
        if files.exists(path):
            return from_text(files.read(path), wanted.selection())
        live = map(entry, self._lake.catalog.live().collect())
        found = waves(
            [it for it in live if wanted.has(it.place)], wave_rows(wanted.rows, wanted.rate)
        )
        files.write_new(path, to_text(wanted.selection(), found))
        return found

    def _send(self, wave: Wave, places: DataFrame) -> int:
        from pyspark.sql import Observation  # noqa: PLC0415  (slow to import)
        from pyspark.sql import functions as f  # noqa: PLC0415

        spark, wanted = self._lake.spark, self._wanted
        rows = self._rows({(it.topic, it.day) for it in wave})
        slices = f.broadcast(spark.createDataFrame([tuple(it) for it in wave], _SLICES))
        chosen = wanted.narrow(spark, sql(spark, _OF_WAVE, rows=rows, slices=slices))
        arguments = {"topic": wanted.topic, "run": wanted.run}
        made = sql(spark, _MESSAGES, arguments, rows=chosen, places=f.broadcast(places))
        # A queue's messages stay in their order: one task sends them, to one queue.
        made = made.repartition("fromTopic", "fromBroker", "fromQueue")
        made = made.sortWithinPartitions("fromTopic", "fromBroker", "fromQueue", "queueOffset")
        seen = Observation()
        sending = made.select(*_SENT).observe(seen, f.count(f.lit(1)).alias("rows"))
        to = {"nameServers": wanted.servers, "partitioner": "queue"}
        sending.write.format("roquet").mode("append").options(**to).save()
        return int(seen.get["rows"])

    def _rows(self, days: set[tuple[str, str]]) -> DataFrame:
        """Return the rows of topics and days of a wave. Raises LakeError for those that are gone.

        A plan may be older than what the lake keeps (`retainDays`).
        """
        here: set[tuple[str, str]] = set()

        def has(it: Part) -> bool:
            here.add((it.topic, it.day))
            return (it.topic, it.day) in days

        rows = self._lake.read(has)
        for topic, day in sorted(days - here):
            raise LakeError(
                f"{topic} of {day} was planned, and {self._lake.root} has it no more: its days were"
                " removed since (retainDays). Another run sends what is there"
            )
        return rows

    def _places(self, origins: set[Origin]) -> DataFrame:
        """Return where each queue of the archive goes; say what is merged.

        Raises UsageError for a topic that is not there.
        """
        targets = {it: self._wanted.topic or it.topic for it in origins}
        held = asyncio.run(_queues(self._wanted.servers, sorted(set(targets.values()))))
        found = places(targets, held)
        for line in merged(targets, found):
            self._say(line)
        rows = [(*origin, *place) for origin, place in sorted(found.items())]
        return self._lake.spark.createDataFrame(rows, _PLACES)

    def _tell(self, left: int) -> None:
        took = max(1, self._clock.now_ms() - self._begun)
        speed = 1000 * self.sent / took
        self._say(f"{self.sent:,} messages sent, {speed:,.0f}/s, {left:,} waves to go")
        if self._wanted.metrics:
            values = {
                "messages": (float(self.sent), "Messages sent since the job began."),
                "waves_left": (float(left), "Waves that are not sent yet."),
                "messages_per_second": (speed, "Since the job began."),
            }
            metrics.write_plain(self._wanted.metrics, "replay", values)

    def _slow_down(self) -> None:
        if self._wanted.rate is not None:
            due = self._begun + 1000 * self.sent / self._wanted.rate
            if (early := due - self._clock.now_ms()) > 0:
                self._wait(early / 1000)


# --- inside --------------------------------------------------------------------------------------


async def _queues(servers: str, topics: Sequence[str]) -> dict[str, list[Place]]:
    async with connect(servers) as mq, mq.producer("roquet_replay") as producer:
        return {
            topic: [Place(it.broker_name, it.queue_id) for it in await producer.queues(topic)]
            for topic in topics
        }


def _counted(spark: SparkSession, lake: Lake, wanted: ReplayOptions) -> Report:
    rows = wanted.narrow(spark, lake.read(wanted.has))
    found: list[Any] = sql(spark, _COUNTS, rows=rows).collect()
    lines = [
        f"{it.topic} {it.day}: {it.messages:,} messages, {_time(it.first)} to {_time(it.last)} UTC"
        for it in found
    ]
    total = sum(it.messages for it in found)
    return Report((*lines, f"{total:,} messages would be sent"))


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
