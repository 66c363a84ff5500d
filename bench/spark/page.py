"""Results of the Spark benchmarks as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def markdown(result: Mapping[str, Any]) -> str:
    """Return the table of a result of any of them, with where and how it was measured."""
    kind = result.get("kind", "spark")
    if kind == "spark-planning":
        return _planning(result)
    return _jobs(result) if kind == "spark-jobs" else _shares(result)


def _where(result: Mapping[str, Any]) -> str:
    took = f", {result['took_s'] / 60:.0f} minutes" if "took_s" in result else ""
    load = f", load average {result['load_average']:.1f}" if "load_average" in result else ""
    return (
        f"{result['machine']}{load}, commit {result['commit']}, `{result['command'].strip()}`,"
        f" {result['time']}{took}."
    )


def _shares(result: Mapping[str, Any]) -> str:
    lines = [
        _where(result),
        "",
        "| data | figure | rows/s | share of the ceiling | wanted | broker CPU s |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        rate = row["rows_per_s"]
        lines.append(
            f"| {row['data']} | {row['name']} | {'' if rate is None else f'{rate:,.0f}'}"
            f" | {row['share']:.2f} | {row['at_least']:.2f} | {row['broker_cpu_s']:.2f} |"
        )
    sets = [
        f"{name}: {count:,} messages, {result['about'][name]}"
        for name, count in result["rows_sent"].items()
    ]
    decode = f"Decoding a log alone: {result['log_decode_gb_per_s']:.2f} GB/s on one core."
    return "\n".join([*lines, "", "; ".join(sets) + ".", "", decode])


def _jobs(result: Mapping[str, Any]) -> str:
    lines = [
        _where(result),
        "",
        "| job | rows | seconds | rows/s | what it said |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {it['name']} | {it['rows']:,} {it['of']} | {it['seconds']:.1f}"
        f" | {it['rows_per_s']:,.0f} | {it['said']} |"
        for it in result["rows"]
    ]
    return "\n".join(lines)


def _planning(result: Mapping[str, Any]) -> str:
    return (
        f"Planning {result['queues']:,} queues: {result['first_cpu_s']:.1f} s of CPU at first,"
        f" {result['next_cpu_s']:.1f} s for each further micro-batch,"
        f" {result['offsets_mib']:.0f} MiB of offsets, {result['peak_rss_mib']:,.0f} MiB of memory"
        f" at most. {_where(result)}"
    )
