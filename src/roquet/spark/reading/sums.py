"""What the messages of a queue come to, by buckets of offsets: count, checksum, first and last.

A broker of ours is asked for them and sends no message. What any other broker has, or ours refuses,
is pulled and summed up here: by the same rule, in the core.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from roquet._native import sum_records
from roquet.base.errors import Corrupt, Unreachable
from roquet.base.overriding import override
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.message import GetSumsRequest, GetSumsResponse
from roquet.spark.offsets import OFFSET_MAX, Range
from roquet.spark.reading.fetch import QueueReader

if TYPE_CHECKING:
    from collections.abc import Iterator


log = logging.getLogger(__name__)

BUCKET: Final = 10_000
"""Offsets of a bucket; a broker sums up as many for one request."""
COLUMNS: Final = ("queueOffset", "uniqKey", "storeTimestamp", "body")
"""What a checksum and its scope need of a message."""


class Sum(NamedTuple):
    """A bucket, or a part of one."""

    bucket: int
    """Its number: offsets divided by `BUCKET`."""
    messages: int
    checksum: int
    first: int
    last: int


class SumReader(QueueReader):
    """Sums up one range; with options whose columns are `COLUMNS`.

    The options' times, if there are any, are those of the messages that count. What is lost is not
    counted.
    """

    def sums(self) -> Iterator[Sum]:
        """Yield sums; those of one bucket may come in parts.

        Raises Corrupt, Refused, Unreachable.
        """
        at, end = self._range.begin, self._range.end
        try:
            while at < end and (found := self._asked(at)) is not None:
                if found.count:
                    number = at // BUCKET
                    yield Sum(number, found.count, found.xor, found.first, found.last)
                at = found.next
        except BaseException:
            self._release()
            raise
        if at >= end:
            self._release()
            return
        self._range = Range(self._range.queue, at, end)
        yield from self.batches()

    # --- inside ------------------------------------------------------------------------------

    def _asked(self, at: int) -> GetSumsResponse | None:
        """Return what the broker says of the bucket of an offset; None: messages are pulled."""
        queue = self._range.queue
        begin, end = self._stored()
        header = GetSumsRequest(
            consumer_group=self._options.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            begin=at,
            end=min(self._range.end, (at // BUCKET + 1) * BUCKET),
            stored_begin=begin,
            stored_end=end,
        )
        command = Command(RequestCode.GET_SUMS, ext=header.encode())
        try:
            answer = self._connections.call(self._addresses, command)
            if answer.code != ResponseCode.SUCCESS:
                # Whatever it is, the pull says it again, or does without.
                log.info("%s from offset %d on is pulled: %s", queue, at, answer.remark)
                return None
            found = GetSumsResponse.decode(answer.ext)
        except (Unreachable, HeaderError) as error:
            log.warning("%s from offset %d on is pulled: %s", queue, at, error)
            return None
        return found if at < found.next <= header.end else None

    def _stored(self) -> tuple[int | None, int | None]:
        topic, starting = self._range.queue.topic, self._options.starting
        begin = None if starting is None else starting.time_of(topic)
        return begin, self._options.ending.time_of(topic)

    @override
    def _decode(self, collected: Any) -> Iterator[Sum]:
        if not collected.bodies:
            return
        begin, end = self._stored()
        try:
            found = sum_records(
                collected.bodies,
                bucket=BUCKET,
                begin=self._range.begin,
                end=self._range.end,
                stored_begin=-OFFSET_MAX if begin is None else begin,
                stored_end=OFFSET_MAX if end is None else end,
            )
        except ValueError as error:
            raise Corrupt(f"messages of {self._range} cannot be decoded: {error}") from error
        yield from (Sum(*it) for it in found)
