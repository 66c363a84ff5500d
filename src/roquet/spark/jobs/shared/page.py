"""The page that `stats` writes: one HTML file with its pictures inside. Pure but for drawing."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

ROWS_MAX: Final = 100
"""Rows of a table on the page; the Parquet tables have all."""
BARS_MAX: Final = 16
LABEL_MAX: Final = 28
SPAN_LABEL_MAX: Final = 48
SHADES: Final = ("#2f6f8f", "#d9822b", "#5a9367", "#a1453b", "#6b5b95", "#8a8d91")

_STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #f4f5f2; color: #22303a;
  font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 1.15rem; margin: 0 0 .8rem; }
.about { color: #66757f; margin: .3rem 0 1.8rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: .9rem; }
.card, section { background: #fff; border: 1px solid #e3e6e1; border-radius: 10px; }
.card { padding: .9rem 1.1rem; }
.card b { display: block; font-size: 1.5rem; font-weight: 650; }
.card span { color: #66757f; font-size: .85rem; }
section { margin-top: 1.1rem; padding: 1.2rem 1.4rem; overflow-x: auto; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 0 1.1rem; }
img { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; color: #66757f; font-weight: 500; font-size: .85rem; }
th, td { padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #eef0ec; }
td.n, th.n { text-align: right; }
.note { color: #66757f; font-size: .85rem; margin: .7rem 0 0; }
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A table of the page. A number is set right, text left; `total` counts rows left out too."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Named counts, biggest first or in an order of their own."""

    title: str
    names: Sequence[str]
    counts: Sequence[int]
    upright: bool = False
    label_max: int = LABEL_MAX
    """Letters of a name that are shown."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Values over time, one line for each name; None breaks a line."""

    title: str
    unit: str
    times: Sequence[datetime]
    values: Mapping[str, Sequence[float | None]]
    filled: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """What happened when: a row for each name, from begin to end in milliseconds, first on top.

    `shades` are places in SHADES. A span without length is shown as a mark.
    """

    title: str
    names: Sequence[str]
    begins: Sequence[float]
    ends: Sequence[float]
    shades: Sequence[int]


Chart = Bars | Lines | Spans


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What the page says, from top to bottom."""

    title: str
    about: str
    cards: Sequence[tuple[str, str]]
    """Value and what it is."""
    charts: Sequence[Chart]
    listings: Sequence[Listing]


def write(page: Page) -> str:
    """Return the page as HTML that needs no other file and no network."""
    cards = "".join(
        f'<div class="card"><b>{_text(value)}</b><span>{_text(what)}</span></div>'
        for value, what in page.cards
    )
    charts = "".join(_figure(chart) for chart in page.charts)
    listings = "".join(_listing(listing) for listing in page.listings)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(page.title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{_text(page.title)}</h1><p class="about">{_text(page.about)}</p>'
        f'<div class="cards">{cards}</div><div class="pair">{charts}</div>{listings}'
        "</main></body></html>\n"
    )


def bytes_text(count: float) -> str:
    """Return a size as people read it: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


# --- inside --------------------------------------------------------------------------------------


def _text(value: object) -> str:
    return html.escape(str(value))


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"<td>{_text('' if value is None else value)}</td>"
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return f'<td class="n">{shown}</td>'


def _listing(listing: Listing) -> str:
    first = listing.rows[0] if listing.rows else ()
    right = [isinstance(value, (int, float)) for value in first] or [False] * len(listing.heads)
    heads = "".join(
        f'<th class="n">{_text(head)}</th>' if number else f"<th>{_text(head)}</th>"
        for head, number in zip(listing.heads, right, strict=True)
    )
    rows = "".join(
        f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in listing.rows[:ROWS_MAX]
    )
    left_out = len(listing.rows) > ROWS_MAX
    more = f"The first {ROWS_MAX}; the Parquet table has all. " if left_out else ""
    note = f'<p class="note">{_text(more + listing.note)}</p>' if more or listing.note else ""
    return (
        f"<section><h2>{_text(listing.title)}</h2><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table>{note}</section>"
    )


def _figure(chart: Chart) -> str:
    picture = base64.b64encode(_png(chart)).decode("ascii")
    return (
        f"<section><h2>{_text(chart.title)}</h2>"
        f'<img alt="{_text(chart.title)}" src="data:image/png;base64,{picture}"></section>'
    )


def _png(chart: Chart) -> bytes:
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import, and needed once)

    figure: Any = Figure(figsize=(6.4, 3.2), dpi=144, layout="constrained")
    axes: Any = figure.subplots()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#c9cfc8")
    axes.tick_params(colors="#55636c", labelsize=8)
    if isinstance(chart, Bars):
        _bars(axes, chart)
    elif isinstance(chart, Spans):
        _spans(axes, chart)
    else:
        _lines(axes, chart)
    made = io.BytesIO()
    figure.savefig(made, format="png")
    return made.getvalue()


def _bars(axes: Any, chart: Bars) -> None:
    names = [_label(name, chart.label_max) for name in chart.names[:BARS_MAX]]
    counts = list(chart.counts[:BARS_MAX])
    places = range(len(names))
    if chart.upright:
        axes.bar(places, counts, color=SHADES[0], width=0.8)
        axes.set_xticks(places, names, rotation=45, ha="right")
        axes.grid(axis="y", color="#eef0ec")
    else:
        axes.barh(places, counts, color=SHADES[0], height=0.7)
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.grid(axis="x", color="#eef0ec")
    axes.set_axisbelow(True)


def _spans(axes: Any, chart: Spans) -> None:
    names = [_label(name, SPAN_LABEL_MAX) for name in chart.names[:BARS_MAX]]
    shown = list(zip(chart.begins, chart.ends, chart.shades, strict=True))[:BARS_MAX]
    for place, (begin, end, shade) in enumerate(shown):
        color = SHADES[shade % len(SHADES)]
        axes.barh(place, end - begin, left=begin, color=color, height=0.6)
        # Thin ones would not be seen beside long ones.
        axes.plot([begin], [place], color=color, marker="|", markersize=9)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds since the send began", fontsize=8, color="#55636c")
    axes.grid(axis="x", color="#eef0ec")
    axes.set_axisbelow(True)


def _lines(axes: Any, chart: Lines) -> None:
    from matplotlib import dates  # noqa: PLC0415

    known: Any = dates
    for number, (name, values) in enumerate(chart.values.items()):
        shade = SHADES[number % len(SHADES)]
        shown = [float("nan") if value is None else value for value in values]
        # A value between two gaps has no line to either side.
        mark = "o" if None in values or len(shown) < 3 else ""
        axes.plot(
            chart.times,
            shown,
            color=shade,
            linewidth=1.6,
            marker=mark,
            markersize=3,
            label=_label(name),
        )
        if chart.filled:
            axes.fill_between(chart.times, shown, color=shade, alpha=0.15)
    if len(chart.times) == 1:
        # A single moment has no span that ticks could be chosen for.
        (only,) = chart.times
        axes.set_xlim(only - timedelta(seconds=30), only + timedelta(seconds=30))
    locator = known.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(known.ConciseDateFormatter(locator))
    axes.set_ylabel(chart.unit, fontsize=8, color="#55636c")
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.grid(axis="y", color="#eef0ec")
    axes.legend(frameon=False, fontsize=8)


def _label(name: str, longest: int = LABEL_MAX) -> str:
    # Names come from messages: a dollar sign would begin a formula.
    short = name if len(name) <= longest else name[: longest - 1] + "…"
    return "".join(sign if sign.isprintable() else "?" for sign in short).replace("$", r"\$")
