"""The table of a result of `bench.spark` as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def markdown(result: Mapping[str, Any]) -> str:
    """Return the table, with where and how it was measured."""
    where = (
        f"{result['machine']}, commit {result['commit']}, `{result['command'].strip()}`,"
        f" {result['time']}, {result['took_s'] / 60:.0f} minutes."
    )
    lines = [
        where,
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
