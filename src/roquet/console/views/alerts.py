"""Alerts: what is wrong now, what was, by which rules, and whether it was told."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.errors import NotFound, UsageError
from roquet.console.alerts.rules import split
from roquet.console.declared import Done

if TYPE_CHECKING:
    from roquet.console.context import Context
    from roquet.console.declared import Data

_PAST = 50


async def alerts(context: Context, _: Data) -> Data:
    """Show alerts that are open, the last that are over, the rules, and the webhook's state."""
    watch = context.parts.watch
    context.parts.sampler.watched()
    rules, webhook = watch.alerts.rules, watch.webhook
    opened = sorted(watch.alerts.open.values(), key=lambda it: -it.since_ms)
    past = list(watch.alerts.past)[: -_PAST - 1 : -1]
    return {
        "open": [dataclasses.asdict(it) for it in opened[: context.limits.rows]],
        "open_count": len(opened),
        "past": [dataclasses.asdict(it) for it in past],
        "rules": {
            "lag": rules.lag,
            "disk": rules.disk,
            "gone": rules.gone,
            "hold": rules.hold,
            "lag_of": dict(list(rules.lag_of.items())[: context.limits.rows]),
        },
        # The path of an address is a secret where chats hand them out.
        "webhook": split(rules.url).hostname if rules.url else "",
        "posted": webhook.posted,
        "waiting": webhook.waiting,
        "lost": webhook.lost,
        "wrong": webhook.wrong,
    }


async def forget(context: Context, given: Data) -> Done:
    """Miss a node no more that was taken away for good; name servers forget a broker, too."""
    broker = given["name"].removeprefix("broker ").rpartition(":")[0]
    brokers = context.admin.brokers
    if broker in await brokers.departed() and broker not in (await brokers.cluster()).brokers:
        await brokers.forget(broker)
    if not context.parts.watch.forget(given["name"]):
        raise NotFound(f"{given['name'][:80]} is no node that is missed")
    return Done(f"{given['name']} is not missed any more", "/alerts")


async def test(context: Context, _: Data) -> Done:
    """Post a test to the webhook."""
    if not context.parts.watch.alerts.rules.url:
        raise UsageError("this console has no webhook: roquet console --alerts FILE")
    context.parts.watch.test()
    return Done("a test waits to be posted", "/alerts")
