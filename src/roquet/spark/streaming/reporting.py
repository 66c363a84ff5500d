"""How far a stream is, told to a consumer group: tools that show a group's lag show Spark's.

The group is for that alone. Nothing is read back: a stream goes on by its checkpoint, whatever the
group's offsets say. A group that has members belongs to others, whose place it would change, and is
refused. Brokers take commits only for a group that they know, and RocketMQ's tools find a group by
its retry topic; so the driver joins it for a moment on each broker, which makes both.
"""

from __future__ import annotations

import logging
import os
import uuid
from typing import TYPE_CHECKING, Final

from roquet.admin.calls import command, read
from roquet.base.errors import Refused, RoquetError, Unreachable, UsageError
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData, decode_consumer_ids
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.headers.client import GetConsumerListByGroupRequest, UnregisterClientRequest
from roquet.protocol.headers.offset import UpdateConsumerOffsetRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.protocol.command import Command
    from roquet.spark.cluster.asking import Connections
    from roquet.spark.cluster.metadata import View
    from roquet.spark.offsets import QueueKey

log = logging.getLogger(__name__)

CLIENT: Final = "roquet-spark@"
"""What the client ids of drivers begin with."""


class GroupReport:
    """Commits offsets of one query to one group; a broker that is away is told the next time."""

    def __init__(self, group: str) -> None:
        """Tell nobody yet."""
        self._group = group
        self._client_id = f"{CLIENT}{os.getpid()}@{uuid.uuid4().hex[:12]}"
        self._joined: dict[str, str] = {}
        """Broker name -> address of the master that knows the group."""
        self._told: dict[QueueKey, int] = {}

    def done(self, offsets: Mapping[QueueKey, int], view: View, connections: Connections) -> None:
        """Commit what has changed since the last time; failures are logged and made up for.

        Raises UsageError when the group has members, Refused when the account may not use it.
        """
        self._introduce(view, connections)
        changed: dict[str, list[tuple[QueueKey, int]]] = {}
        for queue, offset in offsets.items():
            is_known = self._joined.get(queue.broker) == view.masters.get(queue.broker, "")
            if is_known and self._told.get(queue) != offset:
                changed.setdefault(queue.broker, []).append((queue, offset))
        for broker, those in changed.items():
            try:
                self._commit(view.masters[broker], those, connections)
            except RoquetError as error:
                log.warning(
                    "reportGroup: %d offsets are not committed to group %s at %s, their lag is out"
                    " of date: %s",
                    *(len(those), self._group, broker, error),
                )

    # --- inside ------------------------------------------------------------------------------

    def _introduce(self, view: View, connections: Connections) -> None:
        for broker, master in sorted(view.masters.items()):
            if self._joined.get(broker) == master:
                continue
            try:
                self._join(master, connections)
            except Unreachable as error:
                log.warning("reportGroup: broker %s is told later: %s", broker, error)
            else:
                self._joined[broker] = master
                # A slave that was promoted may not have got what its master was told.
                self._told = {it: at for it, at in self._told.items() if it.broker != broker}

    def _commit(
        self, master: str, those: list[tuple[QueueKey, int]], connections: Connections
    ) -> None:
        wanted = [((master,), self._request(queue, offset)) for queue, offset in those]
        refused: Command | None = None
        for (queue, offset), answer in zip(those, connections.call_all(wanted), strict=True):
            if answer.code == ResponseCode.SUCCESS:
                self._told[queue] = offset
            else:
                refused = answer
        if refused is not None:
            raise Refused(refused.code, refused.remark or "")

    def _request(self, queue: QueueKey, offset: int) -> Command:
        header = UpdateConsumerOffsetRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        return command(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    def _join(self, master: str, connections: Connections) -> None:
        data = HeartbeatData(
            client_id=self._client_id, consumers=(ConsumerData(group=self._group),)
        )
        _ask(connections, master, command(RequestCode.HEART_BEAT, None, data.encode()))
        try:
            asked = GetConsumerListByGroupRequest(consumer_group=self._group)
            found = _ask(
                connections, master, command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, asked)
            )
            others = [it for it in read(decode_consumer_ids, found) if not it.startswith(CLIENT)]
        finally:
            leaving = UnregisterClientRequest(client_id=self._client_id, consumer_group=self._group)
            _ask(connections, master, command(RequestCode.UNREGISTER_CLIENT, leaving))
        if others:
            raise UsageError(
                f"reportGroup = {self._group!r}: {len(others)} consumers are members of it, as"
                f" {others[0][:80]}; commits of a stream would move them: name a group of its own"
            )


def _ask(connections: Connections, master: str, request: Command) -> Command:
    answer = connections.call((master,), request)
    if answer.code != ResponseCode.SUCCESS:
        raise Refused(answer.code, answer.remark or "")
    return answer
