"""Proxies of the cluster, by the pages of figures that the console was told of.

A proxy registers nowhere, so nobody but an operator knows where they are. Only addresses that the
console was started with are ever asked.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from roquet.base.errors import RoquetError, Unreachable
from roquet.console.context import each
from roquet.console.declared import View
from roquet.console.roles import Role
from roquet.protocol.hosts import split_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.console.context import Context
    from roquet.console.declared import Data

TIMEOUT_S = 3.0
PAGE_MAX = 4 << 20
"""Bytes of a page of figures; a broker with many topics has long ones."""
_FIGURES_MAX = 60
_WHY_MAX = 1000
_OF_PROXIES = re.compile(r"(roquet_(grpc|remoting)_|rocketmq_(proxy|rpc)_)")
_ROW = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)( \d+)?")


async def proxies(context: Context, _: Data) -> Data:
    """Show whether each proxy is ready, and its figures."""
    addresses = context.parts.config.proxies
    found = await each(asyncio.to_thread(_looked, it) for it in addresses)
    rows: list[dict[str, Any]] = []
    for address, result in zip(addresses, found, strict=True):
        if isinstance(result, RoquetError):
            rows.append({"address": address, "state": "away", "why": str(result), "figures": []})
        else:
            rows.append({"address": address, **result})
    return {"rows": rows}


def _looked(address: str) -> dict[str, Any]:
    """Ask one. Raises Unreachable."""
    status, ready = _get(address, "/readyz", _WHY_MAX)
    page_status, page = _get(address, "/metrics", PAGE_MAX)
    state, why = "ready", ""
    if status == 404:
        # RocketMQ's proxy has figures alone.
        state = "answers"
    elif status != 200:
        state, why = "not ready", ready.strip()
    figures = list(figures_of(page)) if page_status == 200 else []
    return {"state": state, "why": why, "figures": figures[:_FIGURES_MAX]}


def figures_of(page: str) -> Iterator[dict[str, Any]]:
    """Yield name, labels, value and meaning of the figures about clients of proxies."""
    meanings: dict[str, str] = {}
    for line in page.splitlines():
        if line.startswith("# HELP "):
            name, _, text = line.removeprefix("# HELP ").partition(" ")
            meanings[name] = text[:200]
        row = _ROW.fullmatch(line)
        if row is None or not _OF_PROXIES.match(row[1]) or row[1].endswith("_bucket"):
            continue
        try:
            value = float(row[3])
        except ValueError:
            continue
        yield {
            "name": row[1],
            "labels": (row[2] or "")[:200],
            "value": value,
            "about": meanings.get(row[1], ""),
        }


def _get(address: str, path: str, size_max: int) -> tuple[int, str]:
    import http.client  # noqa: PLC0415  (only this page asks by HTTP)

    host, port = split_address(address)
    try:
        connection = http.client.HTTPConnection(host.strip("[]"), port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read(size_max + 1)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable(
            f"{address} does not answer: {str(error) or type(error).__name__}"
        ) from error
    if len(body) > size_max:
        raise Unreachable(f"{address}{path} has more than {size_max} bytes")
    return answer.status, body.decode("utf-8", "replace")


VIEW = View(
    path="/proxies",
    is_own=True,
    title="Proxies",
    role=Role.VIEWER,
    show=proxies,
    template="cluster/proxies.html",
)
