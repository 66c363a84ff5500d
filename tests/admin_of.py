"""Administration for tests without a loop of their own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from roquet import sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.client.sync import Admin


@contextlib.contextmanager
def admin_of(namesrv: str) -> Iterator[Admin]:
    """Connect as long as the block lasts."""
    with sync.connect(f"rmq://{namesrv}") as mq:
        yield mq.admin()
