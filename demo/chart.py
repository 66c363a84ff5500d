"""The picture: mean delay and share of late departures by airport and hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DEPARTURES_MIN = 30
"""Hours with fewer departures are left out: their mean says nothing."""


def draw(statistics: Sequence[dict[str, Any]], path: Path) -> None:
    """Write a PNG."""
    import matplotlib as mpl  # noqa: PLC0415  (slow to import, and needed once)

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (delay, late) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for origin in sorted({row["origin"] for row in statistics}):
        rows = [
            row
            for row in statistics
            if row["origin"] == origin and row["departures"] >= DEPARTURES_MIN
        ]
        hours = [row["hour"] for row in rows]
        delay.plot(hours, [row["mean_delay"] for row in rows], marker="o", ms=3, label=origin)
        late.plot(hours, [100 * row["late_share"] for row in rows], marker="o", ms=3, label=origin)
    delay.set(xlabel="scheduled hour", ylabel="mean departure delay, minutes")
    late.set(xlabel="scheduled hour", ylabel="later than 15 minutes, %")
    for axes in (delay, late):
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.suptitle("Departures from New York's airports, 2013")
    figure.savefig(path, dpi=110)
    plt.close(figure)
