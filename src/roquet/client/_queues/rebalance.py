"""Which queues a member of a consumer group gets: the averaging strategy. Pure."""

from __future__ import annotations

from roquet.model.balance import average

__all__ = ["average"]
