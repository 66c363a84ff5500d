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
    if kind == "spark-kafka":
        return _beside_kafka(result)
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


def _beside_kafka(result: Mapping[str, Any]) -> str:
    """Rates and CPU of both sides; a micro-batch's milliseconds where there is no rate."""
    lines = [
        _where(result),
        "",
        "| figure | rows/s | Kafka's | ratio | CPU | Kafka's | ratio | brokers | Kafka's |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for it in result["rows"]:
        ours, kafka = it["roquet"], it["kafka"]
        ratio = kafka["seconds"] / ours["seconds"]
        cpu = ours["cpu_s"] / kafka["cpu_s"]
        if it["use"] == "floor":
            times = f"{ours['seconds'] * 1e3:,.0f} ms | {kafka['seconds'] * 1e3:,.0f} ms"
            lines.append(f"| {it['name']} | {times} | {ratio:.2f} | | | {cpu:.2f} | | |")
            continue
        millions = it["rows"] / 1e6
        rates = f"{it['rows'] / ours['seconds']:,.0f} | {it['rows'] / kafka['seconds']:,.0f}"
        used = " | ".join(f"{side['cpu_s'] / millions:.1f}" for side in (ours, kafka))
        brokers = " | ".join(f"{side['broker_cpu_s'] / millions:.1f}" for side in (ours, kafka))
        lines.append(f"| {it['name']} | {rates} | {ratio:.2f} | {used} | {cpu:.2f} | {brokers} |")
    for side, seconds in result.get("stream_start_s", {}).items():
        lines += [
            "",
            f"Start and end of a stream that are in no micro-batch, {side}: {seconds:.1f} s.",
        ]
    return "\n".join(lines)


def _planning(result: Mapping[str, Any]) -> str:
    return (
        f"Planning {result['queues']:,} queues: {result['first_cpu_s']:.1f} s of CPU at first,"
        f" {result['next_cpu_s']:.1f} s for each further micro-batch,"
        f" {result['offsets_mib']:.0f} MiB of offsets, {result['peak_rss_mib']:,.0f} MiB of memory"
        f" at most. {_where(result)}"
    )
