"""The remoting front: an adapter for each family of requests."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.broker.remoting.groups import GroupAdapter
from roquet.broker.remoting.offsets import OffsetAdapter
from roquet.broker.remoting.query import QueryAdapter
from roquet.broker.remoting.receive import ReceiveAdapter
from roquet.broker.remoting.replies import ReplyAdapter
from roquet.broker.remoting.send.adapter import SendAdapter
from roquet.broker.remoting.send.recall import RecallAdapter
from roquet.broker.remoting.send.sequences import SequenceAdapter
from roquet.broker.remoting.send_back import SendBackAdapter
from roquet.broker.remoting.topics import TopicAdapter
from roquet.broker.remoting.transactions import TransactionAdapter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.broker.messages.appender import Appender
    from roquet.broker.network.routes import Routed
    from roquet.broker.operations.table import Operations
    from roquet.broker.services.bundle import Services
    from roquet.broker.wiring.base import Base


@dataclasses.dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters, and the one that the fast path hands pulls to."""

    all: tuple[Routed, ...]
    receive: ReceiveAdapter


def make_adapters(
    base: Base,
    services: Services,
    operations: Operations,
    appender: Appender,
    send_ext: Mapping[str, str],
) -> Adapters:
    """Make the adapters; `send_ext` are the fields that every answer to a send carries."""
    callers = base.callers
    receive = ReceiveAdapter(operations, callers)
    # Plugins see send by send.
    steps = None if base.hooks.send else services.sends
    adapters = (
        SendAdapter(operations, callers, send_ext, steps=steps, appender=appender),
        SequenceAdapter(operations, callers),
        ReplyAdapter(operations, callers, send_ext),
        receive,
        OffsetAdapter(services.offsets, callers),
        QueryAdapter(services.queries, callers),
        SendBackAdapter(services.send_backs, callers),
        TransactionAdapter(services.transactions, callers),
        TopicAdapter(services.topics, callers),
        GroupAdapter(services.groups, callers),
        RecallAdapter(services.recalls, callers, send_ext),
    )
    return Adapters(adapters, receive)
