"""The queries of the dashboards for Grafana, and whether a page of metrics can answer them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).resolve().parents[1] / "deploy/grafana"
SCRAPED = {"instance", "job", "le"}
"""Labels that Prometheus adds, and the class of a histogram."""
_SELECTOR = re.compile(r"\b((?:rocketmq|roquet)_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_BY = re.compile(r"\b(?:by|without|on)\s*\(([^)]*)\)")


def boards() -> dict[str, list[str]]:
    """Return the queries of each dashboard, those of its variables included."""
    found: dict[str, list[str]] = {}
    for path in sorted(FOLDER.glob("*.json")):
        board = json.loads(path.read_text())
        queries = [
            target["expr"] for panel in board["panels"] for target in panel.get("targets", [])
        ]
        variables = [one["query"] for one in board["templating"]["list"]]
        found[path.name] = queries + [one for one in variables if "(" in one]
    return found


def unanswered(query: str, labels: Mapping[str, set[str]]) -> list[str]:
    """Return what a query asks for that no family has.

    `labels` are the names of labels by the name of the family, with `_total` for counters.
    """
    selectors = _SELECTOR.findall(query)
    if not selectors:
        return ["no metric"]
    wrong: list[str] = []
    grouped = {one.strip() for part in _BY.findall(query) for one in part.split(",")}
    for name, inner in selectors:
        family = name if name in labels else re.sub(r"_(bucket|sum|count)$", "", name)
        if family not in labels:
            wrong.append(name)
            continue
        asked = {*_LABEL.findall(inner), *grouped} - SCRAPED
        wrong += [f"{name}{{{label}}}" for label in sorted(asked - labels[family])]
    return wrong
