"""What is remembered of the expressions that pulls bring."""

from __future__ import annotations

from roquet.broker.clients.expressions import Choice, Expressions


def test_each_is_news_once_and_a_full_table_begins_anew() -> None:
    known = Expressions(kept_max=2)
    a, b, c = Choice([1], None), Choice([2], None), Choice(None, None)
    known.note("TAG", "A", a)
    known.note("TAG", "A", a)
    known.note("SQL92", "A", b)
    assert known.news == [("TAG", "A", a), ("SQL92", "A", b)]
    known.note("TAG", "C", c)
    assert known.news == [None, ("TAG", "C", c)]
    known.news = []
    known.note("TAG", "C", c)
    assert known.news == []
    known.note("TAG", "A", a)
    assert known.news == [("TAG", "A", a)]
