"""Copies of one half message that lie in the half queue side by side, found at the start. Pure.

A broker copies a half message behind itself at each check, and notes that it has done with the old
one a moment later, or, as a Java broker does, only by an offset that it saves every few seconds.
Killed in between it leaves both. They are one transaction: were each taken for its own, the
producer would be asked about both and both would be committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from roquet.protocol import properties as props

if TYPE_CHECKING:
    from roquet.broker.transactions.book import TransactionBook
    from roquet.store.records import Record


class _Identity(NamedTuple):
    """What copies have in common, and no two transactions of careful producers have."""

    topic: str
    queue_id: str
    unique_key: str
    transaction_id: str
    born_timestamp: int
    born_host: bytes
    body_size: int
    body_crc: int


class Copies:
    """Puts copies together while the half queue is read from old to new."""

    def __init__(self, book: TransactionBook) -> None:
        """Know no message yet."""
        self._book = book
        self._open: dict[_Identity, int] = {}

    @property
    def oldest_open(self) -> int | None:
        """The lowest offset of what was noted as open; None when nothing was."""
        return min(self._open.values(), default=None)

    def note_open(self, offset: int, record: Record, properties: dict[str, str]) -> bool:
        """Note a message that nobody has settled; tell whether an older copy was open already.

        The older one counts at this place from now on.
        """
        identity = _identity(record, properties)
        if identity is None:
            return False
        older, self._open[identity] = self._open.get(identity), offset
        if older is None:
            return False
        # A copy that says whose it is has been put together with it before.
        if self._book.living(older) == older:
            self._book.move(older, offset)
        return True

    def older_than(self, offset: int, record: Record) -> int | None:
        """Return the offset of an open copy older than a settled one, which settles it as well.

        A newer one may be an administrator's, who brought the message back: it stays open.
        """
        identity = _identity(record, props.read(record.properties))
        found = None if identity is None else self._open.get(identity)
        if identity is None or found is None or found > offset:
            return None
        del self._open[identity]
        return found


def _identity(record: Record, properties: dict[str, str]) -> _Identity | None:
    key = properties.get(props.UNIQ_KEY)
    if not key:
        return None
    return _Identity(
        properties.get(props.REAL_TOPIC, ""),
        properties.get(props.REAL_QUEUE_ID, ""),
        key,
        properties.get(props.TRANSACTION_ID, ""),
        record.born_timestamp,
        record.born_host,
        len(record.body),
        record.body_crc,
    )
