"""What `dlq` says of its rows: the page, the lines, the metrics. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from roquet.spark.jobs.shared.metrics import Gauge
from roquet.spark.jobs.shared.page import Bars, Chart, Lines, Listing, Page
from roquet.spark.jobs.watching.lag_page import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUPS_SHOWN: Final = 6
LINES_MAX: Final = 50
BODY_SHOWN: Final = 40


def page(
    where: str,
    *,
    causes: Sequence[Any],
    over_time: Sequence[Any],
    letters: Sequence[Any],
    unreadable: Sequence[str],
) -> Page:
    """Return the page; `causes` most letters first, `letters` newest first."""
    if not causes:
        return Page(
            title="Dead letters",
            about=f"{where}: no dead letters" + _closed(unreadable),
            cards=(),
            charts=(),
            listings=(),
        )
    total = sum(row.letters for row in causes)
    first, last = min(row.firstDead for row in causes), max(row.lastDead for row in causes)
    return Page(
        title="Dead letters",
        about=f"{where} · {_moment(first)} to {_moment(last)} UTC{_closed(unreadable)}",
        cards=[
            (f"{total:,}", "dead letters"),
            (f"{sum(row.messages for row in causes):,}", "messages"),
            (f"{len({row.group for row in causes}):,}", "groups"),
            (f"{len({row.originTopic for row in causes}):,}", "topics they came from"),
            (f"{sum(row.originalsGone for row in causes):,}", "originals that are gone"),
        ],
        charts=_charts(causes, over_time),
        listings=_listings(causes, letters),
    )


def lines(causes: Sequence[Any], unreadable: Sequence[str], last: str) -> tuple[str, ...]:
    """Return a line for each cause, and what is there to be sent again."""
    said = [
        f"{row.group} {row.originTopic or '(unknown topic)'}: {row.letters:,} {row.cause},"
        f" up to {row.retriesMax} retries, {row.originalsGone:,} originals gone"
        for row in causes[:LINES_MAX]
    ]
    said += [f"{topic} cannot be read: it has no read permission" for topic in unreadable]
    return (*said, last) if causes else (*said, "no dead letters")


def gauges(causes: Sequence[Any]) -> tuple[Gauge, ...]:
    """Return what Prometheus is told."""
    values: dict[tuple[tuple[str, str], ...], float] = {
        (("group", row.group), ("topic", row.originTopic), ("cause", row.cause)): float(row.letters)
        for row in causes
    }
    return (Gauge("roquet_dlq_letters", "Dead letters that are kept.", values),)


# --- inside --------------------------------------------------------------------------------------


def _closed(unreadable: Sequence[str]) -> str:
    return f" · without read permission: {', '.join(unreadable)}" if unreadable else ""


def _moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"


def _charts(causes: Sequence[Any], over_time: Sequence[Any]) -> list[Chart]:
    sums: dict[str, int] = {}
    groups: dict[str, int] = {}
    for row in causes:
        sums[row.cause] = sums.get(row.cause, 0) + row.letters
        groups[row.group] = groups.get(row.group, 0) + row.letters
    by_cause = sorted(sums.items(), key=lambda pair: -pair[1])
    by_group = sorted(groups.items(), key=lambda pair: -pair[1])
    moments = sorted({row.at for row in over_time})
    counts = {(row.group, row.at): float(row.letters) for row in over_time}
    shown = [name for name, _ in by_group[:GROUPS_SHOWN]]
    return [
        Lines(
            title="Dead letters over time",
            unit="letters",
            times=[datetime.fromtimestamp(at / 1000, UTC) for at in moments],
            values={name: [counts.get((name, at), 0.0) for at in moments] for name in shown},
            filled=len(shown) == 1,
        ),
        Bars(
            title="Causes",
            names=[name for name, _ in by_cause],
            counts=[count for _, count in by_cause],
        ),
        Bars(
            title="Groups",
            names=[name for name, _ in by_group],
            counts=[count for _, count in by_group],
        ),
    ]


def _listings(causes: Sequence[Any], letters: Sequence[Any]) -> list[Listing]:
    return [
        Listing(
            title="Causes",
            heads=("group", "topic", "cause", "letters", "retries", "gone", "until dead", "last"),
            rows=[
                (
                    *(row.group, row.originTopic, row.cause, row.letters, row.retriesMax),
                    row.originalsGone,
                    duration(row.secondsToDeathP50),
                    _moment(row.lastDead),
                )
                for row in causes
            ],
            note="gone: originals that are in no topic or table any more. until dead: median from"
            " the original's store time to the dead letter's.",
        ),
        Listing(
            title="Newest letters",
            heads=("died", "group", "topic", "keys", "tags", "retries", "cause", "body"),
            rows=[
                (
                    _moment(row.storeTimestamp),
                    *(row.group, row.originTopic, row.keys or "", row.tags or ""),
                    *(row.retries, row.cause, _start(row.body)),
                )
                for row in letters
            ],
            note="The table `resubmit` has every message once, ready to be sent again.",
        ),
    ]


def _start(body: bytes) -> str:
    text = bytes(body[: 4 * BODY_SHOWN]).decode(errors="replace")
    return text if len(text) <= BODY_SHOWN else text[: BODY_SHOWN - 1] + "…"
