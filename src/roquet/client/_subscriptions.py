"""What a consumer subscribes to: topics, with tags or an SQL92 expression each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeGuard

from roquet.base.arguments import a_text, texts
from roquet.base.errors import UsageError
from roquet.model.subscription import ExpressionType, SubscriptionData
from roquet.protocol import names, tags
from roquet.protocol.sql92.compiler import compile_sql

if TYPE_CHECKING:
    from roquet.client._cluster.namespace import Namespace


@dataclasses.dataclass(frozen=True, slots=True)
class Sql:
    """A subscription by SQL92 expression over properties instead of tags."""

    expression: str


Subscriptions = Mapping[str, "str | Sql | None"] | Iterable[str] | str
"""`{topic: expression}`, topics, or one topic."""


def subscribed(given: Subscriptions, namespace: Namespace, now_ms: int) -> list[SubscriptionData]:
    """Return what brokers are told. Raises UsageError."""
    if not _is_table(given):
        texts("subscriptions", given)
    if isinstance(given, str):
        table: Mapping[str, str | Sql | None] = {given: "*"}
    elif _is_table(given):
        table = given
    else:
        table = dict.fromkeys(given, "*")
    if not table:
        raise UsageError("a consumer subscribes to at least one topic")
    for topic in table:
        a_text("a topic of subscriptions", topic)
    return [
        _subscription(namespace.topic(topic), expression, now_ms)
        for topic, expression in table.items()
    ]


def _subscription(topic: str, expression: str | Sql | None, now_ms: int) -> SubscriptionData:
    if not isinstance(expression, Sql) and expression is not None:
        a_text(f"the expression of {topic}", expression)
    wrong = names.check_topic(topic)
    if wrong is not None:
        raise UsageError(wrong)
    kind = ExpressionType.SQL92 if isinstance(expression, Sql) else ExpressionType.TAG
    text = expression.expression if isinstance(expression, Sql) else expression
    try:
        if isinstance(expression, Sql):
            compile_sql(expression.expression)
        return tags.subscribe(topic, text, version=now_ms, expression_type=kind)
    except tags.ExpressionError as error:
        raise UsageError(f"{topic}: {error}") from error


def _is_table(given: object) -> TypeGuard[Mapping[str, str | Sql | None]]:
    return isinstance(given, Mapping)
