"""A picture of a result in which several brokers had the same loads.

`python -m bench.plot RESULT.json ... PICTURE.svg` draws what a message costs each broker's process.
A load that several results have is drawn from the last of them.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.report import NAMES
from bench.scenarios import PEERS

if TYPE_CHECKING:
    from collections.abc import Sequence

COLOURS = {"roquet": "#c2410c", "java": "#64748b", "nats": "#94a3b8", "kafka": "#cbd5e1"}
LOADS = {
    PEERS[0].name: "16 connections,\none message in flight each",
    PEERS[1].name: "4 connections,\n32 in flight each",
    PEERS[2].name: "4 connections,\n32 in one request each",
    PEERS[3].name: "one consumer,\n32 messages a read",
}


def draw(results: Sequence[dict[str, Any]]) -> Figure:
    """Return the picture: a panel for each load, a bar for each broker, shorter is better."""
    all_rows = itertools.chain.from_iterable(result["rows"] for result in results)
    rows = {row["name"]: row["kinds"] for row in all_rows if row["name"] in LOADS}
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    panels = figure.subplots(2, 2).flat
    for panel, (name, label) in zip(panels, LOADS.items(), strict=True):
        kinds = [kind for kind in NAMES if kind in rows[name]]
        cpu = [rows[name][kind]["cpu_us"] for kind in kinds]
        values = [each["median"] for each in cpu]
        spans = [[each["median"] - each["min"] for each in cpu]]
        spans.append([each["max"] - each["median"] for each in cpu])
        bars = panel.barh(
            [NAMES[kind] for kind in kinds],
            values,
            xerr=spans,
            color=[COLOURS[kind] for kind in kinds],
            error_kw={"elinewidth": 1, "ecolor": "#334155"},
        )
        most = max(each["max"] for each in cpu)
        for bar, value, each in zip(bars, values, cpu, strict=True):
            middle = bar.get_y() + bar.get_height() / 2
            panel.text(each["max"] + most * 0.02, middle, f"{value:.1f}", va="center", fontsize=9)
        panel.invert_yaxis()
        panel.set_xlim(0, most * 1.15)
        panel.set_title(label, fontsize=10, loc="left")
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    figure.suptitle("CPU of the broker, µs a message of 1 KiB (shorter is better)", fontsize=12)
    machines = ", ".join(sorted({result["machine"] for result in results}))
    commits = ", ".join(result["commit"] for result in results)
    figure.supxlabel(f"median and range, {machines}, commit {commits}", fontsize=8)
    return figure


def main() -> int:
    """Draw the results that are named."""
    # The same picture for the same result: no random names in it, no time.
    mpl.rcParams["svg.hashsalt"] = "roquet"
    *names, picture = sys.argv[1:]
    results = [json.loads(Path(name).read_text()) for name in names]
    draw(results).savefig(picture, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
