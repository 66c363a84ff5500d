"""What `trace` says of its rows: the page, the lines, the metrics. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from roquet.spark.jobs.shared.metrics import Gauge
from roquet.spark.jobs.shared.page import SPAN_LABEL_MAX, Bars, Chart, Lines, Listing, Page, Spans
from roquet.spark.jobs.tracing.story import Step, Story, words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LINES_MAX: Final = 50
STORIES_DRAWN: Final = 3
_GOOD, _WAITING, _BAD = 0, 5, 3
"""Places in the page's shades."""


def page(
    where: str,
    *,
    counts: Mapping[str, int],
    over_time: Sequence[Any],
    latencies: Sequence[Any],
    failures: Sequence[Any],
    damaged: Sequence[Any],
    stories: Sequence[Story],
) -> Page:
    """Return the page; `latencies` and `failures` most first."""
    if not counts["sends"] and not counts["consumptions"] and not damaged:
        return Page(title="Traces", about=f"{where}: no traces", cards=(), charts=(), listings=())
    drawn = [story for story in stories if story.path][:STORIES_DRAWN]
    return Page(
        title="Traces",
        about=where,
        cards=[
            (f"{counts['sends']:,}", "sends"),
            (f"{counts['consumptions']:,}", "consumptions"),
            (f"{sum(row.consumptions for row in failures):,}", "failed or unfinished"),
            (_worst(latencies), "ms end to end, 99 %, slowest pair"),
            (f"{counts['damaged']:,}", "records that cannot be read"),
        ],
        charts=[*map(_drawn, drawn), *_charts(over_time, latencies, failures)],
        listings=[*map(_told, stories), *_listings(latencies, failures, damaged)],
    )


def lines(
    counts: Mapping[str, int],
    latencies: Sequence[Any],
    failures: Sequence[Any],
    stories: Sequence[Story],
    key: str,
) -> tuple[str, ...]:
    """Return a line for each pair of groups, for each way of failing, and the stories."""
    kinds = (("sends", "sends"), ("consumptions", "consumptions"), ("damaged", "unreadable"))
    said = [", ".join(f"{counts[name]:,} {what}" for name, what in kinds)]
    said += [
        f"{row.producerGroup} at {row.producerHost} to {row.topic} to {row.consumerGroup} at"
        f" {row.consumerHost}:"
        f" {row.consumed:,} of {row.messages:,} messages, {_ms(row.p50)} median,"
        f" {_ms(row.p99)} 99 %, {_ms(row.longest)} longest"
        for row in latencies[:LINES_MAX]
    ]
    said += [
        f"FAILED {row.group} {row.topic or ''} at {row.host}: {row.consumptions:,} {row.code}"
        for row in failures[:LINES_MAX]
    ]
    for story in stories:
        said += words(story)
    if key and not stories:
        said.append(f"nothing is known of the key {key}")
    return tuple(said)


def gauges(latencies: Sequence[Any], failures: Sequence[Any]) -> tuple[Gauge, ...]:
    """Return what Prometheus is told."""
    made: dict[str, dict[tuple[tuple[str, str], ...], float]] = {"p50": {}, "p99": {}}
    for row in latencies:
        labels = tuple(
            (name, str(row[column] or ""))
            for name, column in (
                ("producer_group", "producerGroup"),
                ("topic", "topic"),
                ("producer_host", "producerHost"),
                ("consumer_group", "consumerGroup"),
                ("consumer_host", "consumerHost"),
            )
        )
        for name, values in made.items():
            if row[name] is not None:
                values[labels] = float(row[name])
    failed: dict[tuple[tuple[str, str], ...], float] = {}
    for row in failures:
        failed_labels = (("group", row.group or ""), ("topic", row.topic or ""), ("code", row.code))
        failed[failed_labels] = failed.get(failed_labels, 0.0) + row.consumptions
    return (
        Gauge("roquet_trace_latency_p50_ms", "End to end, median.", made["p50"]),
        Gauge("roquet_trace_latency_p99_ms", "End to end, 99 %.", made["p99"]),
        Gauge("roquet_trace_failed", "Consumptions that failed or did not end.", failed),
    )


# --- inside --------------------------------------------------------------------------------------


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,} ms"


def _worst(latencies: Sequence[Any]) -> str:
    known = [row.p99 for row in latencies if row.p99 is not None]
    return f"{max(known):,}" if known else "unknown"


def _shade(step: Step) -> int:
    if step.waiting:
        return _WAITING
    return _BAD if step.bad else _GOOD


def _drawn(story: Story) -> Spans:
    begin = story.path[0].begin
    # What happened beside the path, by other groups, is part of the picture.
    waits = [step for step in story.path if step.waiting]
    steps = sorted([*story.steps, *waits], key=lambda it: (it.begin, it.end))
    return Spans(
        title=f"What happened to {story.msg_id}",
        names=[step.what for step in steps],
        begins=[step.begin - begin for step in steps],
        ends=[max(step.begin, step.end) - begin for step in steps],
        shades=[_shade(step) for step in steps],
    )


def _told(story: Story) -> Listing:
    begin = story.path[0].begin if story.path else 0
    return Listing(
        title=f"Critical path of {story.msg_id}",
        heads=("when", "at ms", "what", "took ms"),
        rows=[
            (_moment(step.begin), step.begin - begin, step.what, step.span) for step in story.path
        ],
        note=" ".join(it.strip() + "." for it in (words(story)[0], *words(story)[-1:])),
    )


def _moment(milliseconds: int) -> str:
    time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{time:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03}"


def _charts(
    over_time: Sequence[Any], latencies: Sequence[Any], failures: Sequence[Any]
) -> list[Chart]:
    made: list[Chart] = []
    times = [datetime.fromtimestamp(int(row.at) / 1000, UTC) for row in over_time]
    if times:
        made += [
            Lines(
                title="End to end, by time of the send",
                unit="ms",
                times=times,
                values={
                    "median": [row.p50 for row in over_time],
                    "99 %": [row.p99 for row in over_time],
                },
            ),
            Lines(
                title="Traced messages by time of the send",
                unit="messages",
                times=times,
                values={"messages": [float(row.messages) for row in over_time]},
                filled=True,
            ),
        ]
    slow = sorted((row for row in latencies if row.p99 is not None), key=lambda row: -row.p99)
    if slow:
        names = _distinct(slow, _consumer, _pair, _way)
        counts = [row.p99 for row in slow]
        title = "Slowest consumers, 99 %, ms"
        made.append(Bars(title=title, names=names, counts=counts, label_max=SPAN_LABEL_MAX))
    if failures:
        names = _distinct(
            failures,
            lambda row: f"{row.group} {row.code}",
            lambda row: f"{row.group} at {row.host} {row.code}",
            lambda row: f"{row.group} {row.topic or ''} at {row.host} {row.code}",
        )
        counts = [row.consumptions for row in failures]
        title = "Failed consumptions"
        made.append(Bars(title=title, names=names, counts=counts, label_max=SPAN_LABEL_MAX))
    return made


def _distinct(rows: Sequence[Any], *texts: Callable[[Any], str]) -> list[str]:
    """Return names of rows by the first of the texts that gives each one of its own."""
    names: list[str] = []
    for text in texts:
        names = [text(row) for row in rows]
        if len(set(names)) == len(names):
            break
    return names


def _consumer(row: Any) -> str:
    return f"{row.consumerGroup} at {row.consumerHost}"


def _pair(row: Any) -> str:
    return f"{row.producerGroup} at {row.producerHost} to {_consumer(row)}"


def _way(row: Any) -> str:
    return f"{row.topic}: {_pair(row)}"


def _listings(
    latencies: Sequence[Any], failures: Sequence[Any], damaged: Sequence[Any]
) -> list[Listing]:
    return [
        Listing(
            title="End to end",
            heads=("producer", "at", "topic", "consumer", "at", "messages", "done", "p50", "p99"),
            rows=[
                (
                    *(row.producerGroup, row.producerHost, row.topic),
                    *(row.consumerGroup or "", row.consumerHost or "", row.messages, row.consumed),
                    *(_number(row.p50), _number(row.p99)),
                )
                for row in latencies
            ],
            note="Milliseconds from the begin of the send to the end of the first consumption that"
            " succeeded, by the clocks of the two hosts.",
        ),
        Listing(
            title="Failed consumptions",
            heads=("group", "topic", "host", "how", "times", "messages", "retries", "example"),
            rows=[
                (
                    *(row.group, row.topic or "", row.host, row.code, row.consumptions),
                    *(row.messages, _number(row.retriesMax), row.example),
                )
                for row in failures
            ],
            note="UNFINISHED: it began, and no record says that it ended.",
        ),
        Listing(
            title="Records that cannot be read",
            heads=("kind", "why", "host", "record"),
            rows=[(row.kind, row.reason, row.host, row.raw) for row in damaged],
            note="" if damaged else "None.",
        ),
    ]


def _number(value: float | None) -> float | str:
    return "" if value is None else value
