"""From runs to rows, and from rows to a table for people.

`python -m bench.report RESULT.json ...` prints the Markdown tables of
docs/reference/measurements.md, and a list of what has no place in them.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bench.scenarios import SPREAD_AT_MOST

if TYPE_CHECKING:
    from rich.console import Console

    from bench.scenarios import Scenario


NAMES = {
    "roquet": "Roquet",
    "java": "RocketMQ 5.5.0",
    "nats": "NATS JetStream 2.15.2",
    "kafka": "Kafka 4.1.1",
}
FIGURES = (
    "per_second",
    "cpu_us",
    "p50_us",
    "p99_us",
    "p999_us",
    "max_us",
    "errors",
    "lag_p99_ms",
    "lag_p999_ms",
    "lag_max_ms",
    "to_reference",
)
"""What is kept of a run; the loop's lag only where there is a loop.

`to_reference` is a frame shape's CPU in terms of the reference's, which ran right behind it.
"""


def lag(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return upper bounds of the loop's lag in a run, ms, from counts by upper bound."""
    bounds = sorted((float(bound), bound) for bound in after if bound != "max")
    if not bounds:
        return {}
    counts = [after[bound] - before.get(bound, 0) for _, bound in bounds]
    found = {"lag_max_ms": after.get("max", 0.0) * 1000}
    for name, part in (("lag_p99_ms", 0.99), ("lag_p999_ms", 0.999)):
        reached = (
            at for (at, _), count in zip(bounds, counts, strict=True) if count >= part * counts[-1]
        )
        found[name] = min(next(reached) * 1000, found["lag_max_ms"])
    return found


def row(scenario: Scenario, runs: dict[str, list[dict[str, float]]]) -> dict[str, object]:
    """Reduce the runs of a scenario to medians and ranges, and the ratios to Java."""
    kinds: dict[str, dict[str, Any]] = {}
    for kind, figures in runs.items():
        kinds[kind] = {
            name: {
                "median": statistics.median(each[name] for each in figures),
                "min": min(each[name] for each in figures),
                "max": max(each[name] for each in figures),
            }
            for name in FIGURES
            if all(name in each for each in figures)
        }
    result: dict[str, object] = {"name": scenario.name, "options": scenario.options, "kinds": kinds}
    if {"roquet", "java"} <= kinds.keys():
        ratios = [
            (ours["cpu_us"] / java["cpu_us"], ours["per_second"] / max(java["per_second"], 1))
            for ours, java in zip(runs["roquet"], runs["java"], strict=True)
            if java["cpu_us"] > 0
        ]
        if ratios:
            for name, found in zip(
                ("cpu_ratio", "rate_ratio"), zip(*ratios, strict=True), strict=True
            ):
                result[name] = statistics.median(found)
                result[f"{name}_range"] = [min(found), max(found)]
    result["cpu_at_most"] = scenario.cpu_at_most
    result["rate_at_least"] = scenario.rate_at_least
    return result


def spread(rows: list[dict[str, Any]]) -> dict[str, object]:
    """Return how far CPU per message differs between frame shapes: the largest to the smallest.

    Each counts in terms of the reference: a shared machine has faster minutes and slower ones.
    """
    figures = {line["name"]: line["kinds"]["roquet"]["to_reference"]["median"] for line in rows}
    return {
        "name": f"spread of CPU over {len(rows)} frame shapes",
        "spread": max(figures.values()) / min(figures.values()),
        "spread_at_most": SPREAD_AT_MOST,
        "to_reference": figures,
    }


def show(result: dict[str, Any], console: Console) -> None:
    """Print one line a scenario."""
    table = Table(title=f"{result['machine']}, commit {result['commit']}")
    for column in ("load", "", "messages/s", "CPU µs/message", "p50 µs", "p99 µs", "against Java"):
        table.add_column(column, justify="right" if "µ" in column or "/" in column else "left")
    for line in result["rows"]:
        if "spread" in line:
            table.add_row(line["name"], "", "", "", "", "", _spread_verdict(line))
            continue
        if "kinds" not in line:
            table.add_row(line["name"], "", str({k: v for k, v in line.items() if k != "name"}))
            continue
        for index, (kind, figures) in enumerate(line["kinds"].items()):
            median = {name: values["median"] for name, values in figures.items()}
            table.add_row(
                line["name"] if index == 0 else "",
                kind,
                f"{median['per_second']:,.0f}",
                f"{median['cpu_us']:.1f}",
                f"{median['p50_us']:,.0f}",
                f"{median['p99_us']:,.0f}",
                _verdict(line) if kind == "roquet" else "",
            )
    console.print(table)


def _verdict(line: dict[str, Any]) -> str:
    parts: list[str] = []
    if line.get("cpu_ratio") is not None:
        parts.append(f"CPU x {line['cpu_ratio']:.2f}{_range(line, 'cpu_ratio', 2)}")
        if line["cpu_at_most"] is not None:
            parts.append("held" if line["cpu_ratio"] <= line["cpu_at_most"] else "missed")
    if line.get("rate_ratio") is not None:
        parts.append(f"rate x {line['rate_ratio']:.1f}{_range(line, 'rate_ratio', 1)}")
        if line["rate_at_least"] is not None:
            parts.append("held" if line["rate_ratio"] >= line["rate_at_least"] else "missed")
    return ", ".join(parts)


def _range(line: dict[str, Any], name: str, digits: int) -> str:
    least, most = line.get(f"{name}_range") or (0, 0)
    return f" ({least:.{digits}f} to {most:.{digits}f})" if most > least else ""


def _spread_verdict(line: dict[str, Any]) -> str:
    word = "held" if line["spread"] <= line["spread_at_most"] else "missed"
    return f"x {line['spread']:.2f} from the cheapest to the dearest, {word}"


def markdown(results: list[dict[str, Any]]) -> str:
    """Return the rows of several results as one Markdown table."""
    lines = [
        "| load | messages/s | Java | CPU µs | Java | p99 ms | Java | lag ms | ratio to Java's |",
        "|---|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    for line in (row for result in results for row in result["rows"]):
        kinds = line.get("kinds")
        if "spread" in line:
            cells = [line["name"], *["-"] * 7, _spread_verdict(line)]
            lines.append(f"| {' | '.join(cells)} |")
        if kinds is None or "nats" in kinds or "kafka" in kinds:
            continue
        ours, java = _medians(kinds["roquet"]), _medians(kinds.get("java", {}))
        cells = [line["name"]]
        for name, scale, digits in (("per_second", 1, 0), ("cpu_us", 1, 1), ("p99_us", 1e-3, 1)):
            for kind, medians in (("roquet", ours), ("java", java)):
                spans = _span(kinds.get(kind, {}), name, scale, digits)
                cells.append(_figure(medians, name, scale, digits) + spans)
        lags = [_figure(ours, f"lag_{part}_ms", 1, 0) for part in ("p99", "p999", "max")]
        cells.append(", ".join(lags))
        lines.append(f"| {' | '.join(cells)} | {_verdict(line) or '-'} |")
    return "\n".join(lines)


def beside_others(results: list[dict[str, Any]]) -> str:
    """Return a Markdown table of the loads that brokers of other protocols had as well."""
    lines = [
        f"| load | figure | {' | '.join(NAMES.values())} |",
        f"|---|---|{'---:|' * len(NAMES)}",
    ]
    for line in (row for result in results for row in result["rows"]):
        kinds = line.get("kinds", {})
        if not {"nats", "kafka"} & kinds.keys():
            continue
        for label, name, scale, digits in (
            ("CPU µs a message", "cpu_us", 1, 1),
            ("messages/s", "per_second", 1, 0),
            ("p99 ms", "p99_us", 1e-3, 1),
        ):
            cells = [line["name"].removeprefix("peers: "), label]
            for kind in NAMES:
                figures = kinds.get(kind, {})
                spans = _span(figures, name, scale, digits)
                cells.append(_figure(_medians(figures), name, scale, digits) + spans)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def remarks(results: list[dict[str, Any]]) -> str:
    """Return a Markdown list of the rows that are no loads: memory, start, recovery, the disk."""
    lines: list[str] = []
    for line in (row for result in results for row in result["rows"]):
        parts: list[str] = []
        if "alone_per_second" in line:
            parts.append(f"{line['alone_per_second']:,.0f} a second")
        for kind, memory in line.get("memory", {}).items():
            parts.append(f"{kind} {memory['private']:,.0f}")
        for kind, seconds in (line.get("start_s") or line.get("seconds") or {}).items():
            size = line.get("log_mib", {}).get(kind)
            parts.append(f"{kind} {seconds:.2f}" + (f" s for {size:,.0f} MiB" if size else ""))
        idle = line.get("idle_rss_mib", {}).items()
        parts += [f"{kind} idle {size:,.0f} MiB" for kind, size in idle]
        if parts:
            lines.append(f"- {line['name']}: {', '.join(parts)}")
    return "\n".join(lines)


def _medians(figures: dict[str, Any]) -> dict[str, float]:
    return {name: values["median"] for name, values in figures.items()}


def _figure(medians: dict[str, float], name: str, scale: float, digits: int) -> str:
    return f"{medians[name] * scale:,.{digits}f}" if name in medians else "-"


def _span(figures: dict[str, Any], name: str, scale: float, digits: int) -> str:
    values = figures.get(name)
    if values is None or values["max"] <= values["min"]:
        return ""
    least, most = values["min"] * scale, values["max"] * scale
    return f" ({least:,.{digits}f} to {most:,.{digits}f})"


if __name__ == "__main__":
    read = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
    print(markdown(read), beside_others(read), remarks(read), sep="\n\n")
