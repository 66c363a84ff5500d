"""What a plan must see: brokers that are away are waited for, never taken for lost messages.

Routes lack a broker that restarts or is cut off, and those of a name server that restarts itself
lack all brokers until they register again. So absence from a route says nothing about messages.
What a plan must see is what the options name, what a stream read before, and, where there is
neither, also the brokers that our name server says have left; Java's does not keep them. A queue
is gone only when its broker is registered and does not have it, and its end has moved back only
when its master says so: a slave may not have got that far yet.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from roquet.base.errors import Refused, Unreachable, UsageError
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from roquet.spark.cluster.metadata import Metadata, View
    from roquet.spark.cluster.patience import Patience
    from roquet.spark.offsets import QueueKey
    from roquet.spark.options import Topics

_STARTING = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})

_UNSURE = (
    "read of the brokers that are registered now: %s. The name server does not keep who left; name"
    " all brokers in the option brokers to have one that is away waited for"
)
log = logging.getLogger(__name__)


class Need(NamedTuple):
    """What a plan must see: these brokers, and these queues up to an offset each.

    With `everything`, also the brokers that served the topics and have left.
    """

    queues: Mapping[QueueKey, int]
    brokers: Collection[str] = ()
    everything: bool = False


def settled(
    metadata: Metadata, topics: Topics, need: Need, patience: Patience, *, missing_ok: bool = False
) -> View:
    """Return a view in which nothing is missing that is only away.

    Queues that are not in it then are gone; those that end before what is needed moved back.

    Raises Unreachable naming what is away after the limit, UsageError, Refused.
    """
    while True:
        try:
            view = metadata.view(topics, missing_ok=True)
            away = _away(metadata, view, need, missing_ok=missing_ok)
            if away is None:
                if need.everything and view.departed is None:
                    log.warning(_UNSURE, ", ".join(sorted(view.addresses)) or "none")
                found = _confirmed(metadata, view, need)
                patience.reset()
                return found
        except Unreachable as error:
            away = str(error)
        except Refused as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise UsageError(
                    f"nameServers: what answers there is no name server ({error}); theirs is port"
                    " 9876, as a rule, and 10911 a broker's"
                ) from error
            if error.code not in _STARTING:
                raise
            away = str(error)
        patience.wait(away)


def missing(view: View, need: Need) -> list[str]:
    """Return the brokers that are needed and in no route. Pure."""
    wanted = set(need.brokers)
    if need.everything:
        wanted |= view.departed or frozenset()
    wanted |= {queue.broker for queue in need.queues if queue not in view.bounds}
    return sorted(wanted - view.addresses.keys())


def _away(metadata: Metadata, view: View, need: Need, *, missing_ok: bool) -> str | None:
    """Say what is away, None when nothing is. Raises UsageError for topics that do not exist."""
    absent = missing(view, need)
    nowhere = () if missing_ok else view.absent
    if not absent and not nowhere:
        return None
    registered = metadata.clusters().brokers.keys()
    # Of one that left, a slave alone may be back, which does not say what it has.
    left = view.departed if need.everything and view.departed else frozenset[str]()
    if away := [name for name in absent if name not in registered or name in left]:
        return (
            f"broker {', '.join(away)} is not registered at the name servers (registered:"
            f" {', '.join(sorted(registered)) or 'none'}); if it was removed for good, name those"
            " that remain in the option brokers"
        )
    if nowhere and not registered:
        return "no broker is registered at the name servers"
    if nowhere:
        raise UsageError(nowhere[0])
    return None


def _confirmed(metadata: Metadata, view: View, need: Need) -> View:
    """Return the view with what masters say of queues that end too early. Raises Unreachable."""
    short = [
        queue
        for queue, offset in need.queues.items()
        if queue in view.bounds and view.bounds[queue].high < offset
    ]
    return metadata.confirmed(view, short) if short else view
