"""Tag expressions: `*` or `tagA || tagB` (spec: wire §17.1)."""

from __future__ import annotations

from roquet.model.subscription import SUB_ALL, ExpressionType, SubscriptionData
from roquet.protocol.java_hash import java_hash

EXPRESSION_LENGTH_MAX = 4096
"""Bytes of an expression, tags or SQL (bad input B11)."""
TAGS_MAX = 512


class ExpressionError(ValueError):
    """The subscription's expression cannot be used; brokers answer it with code 23."""


def subscribe(
    topic: str,
    expression: str | None,
    *,
    version: int = 0,
    expression_type: str | None = ExpressionType.TAG,
) -> SubscriptionData:
    """Make the subscription for an expression; None, empty and `*` take every message.

    Raises ExpressionError when it is too long, has too many tags, or names none.
    """
    text = expression or SUB_ALL
    if len(text.encode("utf-8", "surrogatepass")) > EXPRESSION_LENGTH_MAX:
        raise ExpressionError(f"expression is longer than {EXPRESSION_LENGTH_MAX} bytes")
    if expression_type and expression_type != ExpressionType.TAG:
        return SubscriptionData(
            topic=topic, expression=text, expression_type=expression_type, version=version
        )
    if text.strip() == SUB_ALL:
        return SubscriptionData(topic=topic, expression=SUB_ALL, version=version)
    tags = [tag for part in text.split("||") if (tag := part.strip())]
    if not tags:
        raise ExpressionError("expression has no tag")
    if len(tags) > TAGS_MAX:
        raise ExpressionError(f"expression has more than {TAGS_MAX} tags")
    return SubscriptionData(
        topic=topic,
        expression=text,
        tags=frozenset(tags),
        codes=frozenset(java_hash(tag) for tag in tags),
        version=version,
    )
