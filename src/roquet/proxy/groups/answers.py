"""A broker's answer about a group, with the members that no broker knows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.protocol.bodies.clients import (
    Connection,
    ConsumerConnection,
    decode_consumer_ids,
    encode_consumer_ids,
)
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import reply_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.protocol.command import Command
    from roquet.proxy.groups.notices import Notice

_NOBODY = "no consumer for this group"
"""How brokers begin the remark of a group without members (38)."""


def with_members(asked: Command, answer: Command, others: Sequence[Notice]) -> Command:
    """Return the answer to 38 or 203 with `others` as well; a refusal stays one.

    A group that has no member at the broker has these alone. Raises JsonError.
    """
    is_empty = _says_nobody(asked, answer)
    if answer.code != ResponseCode.SUCCESS and not is_empty:
        return answer
    if asked.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
        ids = [] if is_empty else decode_consumer_ids(answer.body)
        named = dict.fromkeys([*ids, *(member.client_id for member in others)])
        return reply_to(asked, ext={}, body=encode_consumer_ids(named))
    first = others[0].consumer
    found = ConsumerConnection(
        connections=(),
        consume_type=first.consume_type,
        message_model=first.message_model,
        consume_from_where=first.consume_from_where,
        subscriptions={},
    )
    if not is_empty:
        found = ConsumerConnection.decode(answer.body)
    subscriptions = dict(found.subscriptions)
    connections = {(one.client_id, one.client_address): one for one in found.connections}
    for member in others:
        where = member.client_id, member.channel.client
        connections[where] = Connection(
            client_id=where[0],
            client_address=where[1],
            language=member.language,
            version=member.version,
        )
        for subscription in member.consumer.subscriptions:
            subscriptions.setdefault(subscription.topic, subscription)
    full = dataclasses.replace(
        found, connections=tuple(connections.values()), subscriptions=subscriptions
    )
    return reply_to(asked, ext={}, body=full.encode())


def _says_nobody(asked: Command, answer: Command) -> bool:
    if asked.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
        return answer.code == ResponseCode.SYSTEM_ERROR and (answer.remark or "").startswith(
            _NOBODY
        )
    return answer.code == ResponseCode.CONSUMER_NOT_ONLINE
