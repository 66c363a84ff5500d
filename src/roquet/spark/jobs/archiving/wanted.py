"""The options of the job `archive`, checked. Pure but for files with schemas."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.bodies.column import Bodies
from roquet.spark.jobs.options.lake import ARCHIVE
from roquet.spark.offsets import from_json
from roquet.spark.option_table import Given

if TYPE_CHECKING:
    from collections.abc import Mapping

LISTENING: Final = ("earliest", "latest")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """The options, checked. `reading` are those of the source; empty when nothing is read."""

    out: str
    kind: str
    reading: dict[str, str]
    starting: str
    checkpoint: str
    interval_s: int
    bodies: Bodies
    fail_on_bad: bool
    compact: bool
    target: int
    grace_ms: int
    retain_days: int | None
    check: bool
    break_lock: bool
    metrics: str | None
    dry_run: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ArchiveOptions:
        """Check options. Raises UsageError."""
        given = Given(options, ARCHIVE)
        out = (given.text("out") or "").rstrip("/")
        if not out:
            raise UsageError("out is needed: the folder of the lake")
        wanted = cls(
            out=out,
            kind=given.choice("format"),
            reading=_reading(given),
            starting=_starting(given.text("startingOffsets") or "earliest"),
            checkpoint=given.text("checkpoint") or f"{out}/_checkpoint",
            interval_s=given.number("interval") or 0,
            bodies=Bodies.parse(
                given.choice("body"),
                given.text("schema"),
                given.text("message"),
                given.text("schemas"),
            ),
            fail_on_bad=given.flag("failOnBadBodies"),
            compact=given.flag("compact"),
            target=given.number("targetBytes") or 134_217_728,
            grace_ms=60_000 * (given.number("graceMinutes") or 0),
            retain_days=given.number("retainDays"),
            check=given.flag("check"),
            break_lock=given.flag("breakLock"),
            metrics=given.text("metricsPath"),
            dry_run=given.flag("dryRun"),
        )
        if not (wanted.reading or wanted.upkeep or wanted.check):
            raise UsageError(
                "nothing to do: give nameServers and subscribe, or compact, retainDays or check"
            )
        if wanted.fail_on_bad and wanted.bodies.kind == "raw":
            raise UsageError("failOnBadBodies is for body json, avro or protobuf")
        if wanted.interval_s and (wanted.upkeep or wanted.check):
            raise UsageError(
                "interval runs until it is stopped: look after the lake in another run"
            )
        return wanted

    @property
    def upkeep(self) -> bool:
        """Whether the lake is changed without reading a topic."""
        return self.compact or self.retain_days is not None

    def plan(self) -> tuple[str, ...]:
        """Return what will be done, in lines."""
        lines: list[str] = []
        if self.reading:
            topics = self.reading.get("subscribe") or self.reading.get("subscribePattern")
            until = f"every {self.interval_s} s" if self.interval_s else "up to the present"
            lines += [
                f"archive {topics} of {self.reading['nameServers']} {until}",
                f"go on where {self.out} ends, and begin queues at: {self.starting}",
                f"write {self.kind} by topic and day to {self.out}, bodies {self.bodies.kind}",
                f"keep offsets in {self.checkpoint}",
            ]
        if self.compact:
            lines.append(f"merge files below {self.target // 2:,} bytes of each topic and day")
        if self.retain_days is not None:
            lines.append(f"remove days that ended more than {self.retain_days} days ago")
        if self.check:
            lines.append("compare the catalog with what can be read from the lake")
        return tuple(lines)


# --- inside --------------------------------------------------------------------------------------


def _reading(given: Given) -> dict[str, str]:
    servers = given.text("nameServers")
    topics = {
        name: value for name in ("subscribe", "subscribePattern") if (value := given.text(name))
    }
    if not servers:
        if topics:
            raise UsageError("subscribe needs nameServers")
        return {}
    if len(topics) != 1:
        raise UsageError("nameServers needs one of subscribe and subscribePattern, and not both")
    limit = given.number("maxOffsetsPerTrigger")
    return {
        **topics,
        "nameServers": servers,
        "maxOffsetsPerTrigger": str(200_000 if limit is None else limit),
        "failOnDataLoss": "true" if given.flag("failOnDataLoss") else "false",
    }


def _starting(text: str) -> str:
    if text not in LISTENING:
        from_json(text, symbols=True)
    return text
