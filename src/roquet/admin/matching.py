"""Which messages a look at a topic wants: by tag, key, and SQL92 expression.

Evaluated where the messages are read, by the same code as in brokers: a broker needs no setting
for it, and reads are the same whatever is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet._native import Filter
from roquet.base.errors import UsageError
from roquet.protocol import properties, tags
from roquet.protocol.sql92.compiler import compile_sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.model.message import StoredMessage


def matcher(
    *, tag: str | None = None, key: str | None = None, sql: str | None = None
) -> Callable[[StoredMessage], bool]:
    """Return what tells whether a message is wanted by all that is given.

    `tag` is an expression like `a || b`. Raises UsageError for an expression that is none.
    """
    try:
        wanted = tags.subscribe("", tag)
        compiled = None if sql is None else Filter(compile_sql(sql))
    except ValueError as error:
        raise UsageError(f"the filter cannot be used: {error}") from error

    def matches(message: StoredMessage) -> bool:
        if key is not None and key not in message.keys:
            return False
        if not wanted.takes_tag(message.tag):
            return False
        text = properties.write(message.properties)
        return compiled is None or compiled.matches(text.encode("utf-8", "surrogateescape"))

    return matches
