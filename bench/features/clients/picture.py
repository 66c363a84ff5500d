"""A picture of a result of `bench.features.client --peers`.

`python -m bench.features.clients.picture RESULT.json PICTURE.svg`
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

COLOURS = {"roquet": "#c2410c", "aiokafka": "#64748b", "nats-py": "#94a3b8", "rocketmq": "#cbd5e1"}
CASES = {
    "submit": "many sends in flight",
    "send": "each send waited for",
    "push": "consumer, one by one",
    "pull": "polls of 256",
}


def draw(result: dict[str, Any]) -> Figure:
    """Return the picture: a panel for each kind of work, a bar for each client."""
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    for panel, (case, label) in zip(figure.subplots(2, 2).flat, CASES.items(), strict=True):
        bars = [
            (name if each == case else f"{name}, blocking", statistics.median(figures[each]))
            for name, figures in result["cpu_us"].items()
            for each in (case, f"sync {case}")
            if each in figures
        ]
        names, values = zip(*bars, strict=True)
        colours = [next(c for start, c in COLOURS.items() if it.startswith(start)) for it in names]
        for bar, value in zip(panel.barh(names, values, color=colours), values, strict=True):
            middle = bar.get_y() + bar.get_height() / 2
            panel.text(value + max(values) * 0.02, middle, f"{value:.1f}", va="center", fontsize=8)
        panel.invert_yaxis()
        panel.set_xlim(0, max(values) * 1.18)
        panel.set_title(label, fontsize=10, loc="left")
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(axis="y", length=0, labelsize=8)
    figure.suptitle("CPU of the client, µs a message of 1 KiB (shorter is better)", fontsize=12)
    # Results of before 2026-11-28 16:30 have both loads in one field.
    low, high = result.get("load") or (result["load_average"], result["load_average_after"])
    where = f"median, {result['machine']}, commit {result['commit']}, load {low:.1f} to {high:.1f}"
    figure.supxlabel(where, fontsize=8)
    return figure


def main() -> int:
    """Draw the result that is named."""
    # The same picture for the same result: no random names in it, no time.
    mpl.rcParams["svg.hashsalt"] = "roquet"
    name, picture = sys.argv[1:]
    draw(json.loads(Path(name).read_text())).savefig(picture, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
