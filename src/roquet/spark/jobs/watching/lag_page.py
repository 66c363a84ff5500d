"""What `lag` says of its rows: the page, the lines, the metrics. Pure."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from roquet.spark.jobs.shared.metrics import Gauge
from roquet.spark.jobs.shared.page import Bars, Chart, Lines, Listing, Page

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUPS_SHOWN: Final = 6
"""Groups with a line of their own in a plot, those with most messages left."""
LINES_MAX: Final = 50
"""Alerts that are printed; the table has all."""


def page(
    where: str,
    *,
    history: Sequence[Any],
    groups: Sequence[Any],
    queues: Sequence[Any],
    members: Sequence[Any],
    alerts: Sequence[Any],
) -> Page:
    """Return the page of rows that the tables have: `history` by time, the others worst first."""
    if not groups and not alerts:
        return Page(
            title="Consumer lag", about=f"{where}: no snapshots", cards=(), charts=(), listings=()
        )
    times = sorted({_utc(row.at) for row in history})
    span = f" · {times[0]:%Y-%m-%d %H:%M:%S} to {times[-1]:%Y-%m-%d %H:%M:%S} UTC" if times else ""
    return Page(
        title="Consumer lag",
        about=f"{where}{span} · {len(times):,} snapshots shown",
        cards=_cards(groups, members, alerts),
        charts=(*_over_time(history, times, groups), *_bars(queues, members)),
        listings=_listings(groups, queues, members, alerts),
    )


def lines(groups: Sequence[Any], alerts: Sequence[Any]) -> tuple[str, ...]:
    """Return the sum, a line for each group and topic, and one for each alert."""
    said = [
        f"{row.group} {row.topic}: {row.messagesLeft:,} left, {_rate(row.consumedRate)} consumed,"
        f" {_rate(row.producedRate)} produced, catches up: {duration(row.secondsToCatchUp)}"
        for row in groups[:LINES_MAX]
    ]
    said += [f"ALERT {row.kind}: {_place(row)}: {row.detail}" for row in alerts[:LINES_MAX]]
    said.append(f"{len(alerts):,} alerts" if alerts else "no alert")
    return tuple(said)


def gauges(groups: Sequence[Any], alerts: Sequence[Any]) -> tuple[Gauge, ...]:
    """Return what Prometheus is told."""

    def by_group(name: str) -> dict[tuple[tuple[str, str], ...], float]:
        rows = {(("group", row.group), ("topic", row.topic)): row[name] for row in groups}
        return {labels: float(value) for labels, value in rows.items() if value is not None}

    kinds = Counter(row.kind for row in alerts)
    return (
        Gauge("roquet_lag_messages", "Messages before the group.", by_group("messagesLeft")),
        Gauge("roquet_lag_consumed_per_second", "Rate of the window.", by_group("consumedRate")),
        Gauge("roquet_lag_catch_up_seconds", "Absent: never.", by_group("secondsToCatchUp")),
        Gauge(
            "roquet_lag_alerts", "Alerts by kind.", {(("kind", it),): n for it, n in kinds.items()}
        ),
    )


def duration(seconds: float | None) -> str:
    """Return a time span as people read it; None is never."""
    if seconds is None:
        return "never"
    if seconds < 1:
        return "now" if seconds == 0 else "under 1 s"
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} s"


# --- inside --------------------------------------------------------------------------------------


def _utc(time: datetime) -> datetime:
    # Spark hands over times of its session's zone, which the command and the tests set to UTC.
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _rate(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.1f}/s"


def _place(row: Any) -> str:
    queue = None if row.queueId is None else f"queue {row.queueId}"
    parts = (row.group, row.topic, row.brokerName, queue, row.clientId)
    return " ".join(part for part in parts if part)


def _cards(
    groups: Sequence[Any], members: Sequence[Any], alerts: Sequence[Any]
) -> list[tuple[str, str]]:
    late = [row for row in groups if row.messagesLeft]
    spans = [row.secondsToCatchUp for row in late]
    longest = duration(None if None in spans else max(spans, default=0.0))
    return [
        (f"{len(alerts):,}", "alerts"),
        (f"{sum(row.messagesLeft for row in groups):,}", "messages left"),
        (longest, "until the last has caught up"),
        (f"{len({row.group for row in groups}):,}", "groups"),
        (f"{sum(row.stoppedQueues for row in groups):,}", "stopped queues"),
        (f"{len(members):,}", "members"),
    ]


def _over_time(history: Sequence[Any], times: list[datetime], groups: Sequence[Any]) -> list[Chart]:
    names = list(dict.fromkeys(row.group for row in groups))[:GROUPS_SHOWN]
    if not times or not names:
        return []

    def by_group(column: str) -> dict[str, list[float | None]]:
        return {name: _sums(history, times, column, name) for name in names}

    return [
        Lines(
            title="Messages left, by group",
            unit="messages",
            times=times,
            values=by_group("messagesLeft"),
            filled=len(names) == 1,
        ),
        Lines(
            title="Produced and consumed, all groups",
            unit="messages a second",
            times=times,
            values={
                "produced": _sums(history, times, "producedRate", None),
                "consumed": _sums(history, times, "consumedRate", None),
            },
        ),
        Lines(
            title="Consumed, by group",
            unit="messages a second",
            times=times,
            values=by_group("consumedRate"),
        ),
    ]


def _sums(
    history: Sequence[Any], times: list[datetime], column: str, group: str | None
) -> list[float | None]:
    """Return the sum of a column at each time; None where there is nothing to sum."""
    found: dict[datetime, float] = {}
    for row in history:
        if row[column] is not None and group in {None, row.group}:
            found[_utc(row.at)] = found.get(_utc(row.at), 0.0) + row[column]
    return [found.get(time) for time in times]


def _bars(queues: Sequence[Any], members: Sequence[Any]) -> list[Bars]:
    late = [row for row in queues if row.messagesLeft]
    held = [row for row in members if row.messagesLeft]
    made: list[Bars] = []
    if late:
        names = [f"{row.group} {row.topic} {row.queueId}" for row in late]
        counts = [row.messagesLeft for row in late]
        made.append(Bars(title="Messages left, by queue", names=names, counts=counts))
    if held:
        names = [row.clientId for row in held]
        counts = [row.messagesLeft for row in held]
        made.append(Bars(title="Messages left, by member", names=names, counts=counts))
    return made


def _listings(
    groups: Sequence[Any], queues: Sequence[Any], members: Sequence[Any], alerts: Sequence[Any]
) -> list[Listing]:
    return [
        Listing(
            title="Alerts",
            heads=("kind", "where", "what"),
            rows=[(row.kind, _place(row), row.detail) for row in alerts],
            note="" if alerts else "None.",
        ),
        Listing(
            title="Groups",
            heads=("group", "topic", "queues", "left", "consumed/s", "produced/s", "catches up"),
            rows=[
                (
                    row.group,
                    row.topic,
                    row.queues,
                    row.messagesLeft,
                    *(_shown(row.consumedRate), _shown(row.producedRate)),
                    duration(row.secondsToCatchUp),
                )
                for row in groups
            ],
            note="Rates of the window; catching up: messages left by consumed less produced.",
        ),
        Listing(
            title="Members",
            heads=("group", "member", "state", "queues", "left", "consumed/s", "stopped queues"),
            rows=[
                (
                    *(row.group, row.clientId, row.state, row.queues, row.messagesLeft),
                    *(_shown(row.consumedRate), row.stoppedQueues),
                )
                for row in members
            ],
            note="Those of the last snapshot, with the queues that they say they hold.",
        ),
        Listing(
            title="Queues",
            heads=("group", "topic", "broker", "queue", "state", "offset", "end", "left", "member"),
            rows=[
                (
                    *(row.group, row.topic, row.brokerName, row.queueId, row.state),
                    *(row.offset, row.maxOffset, row.messagesLeft, row.clientId or ""),
                )
                for row in queues
            ],
        ),
    ]


def _shown(value: float | None) -> float | str:
    return "" if value is None else float(value)
