"""The blocking client under its public name: `import roquet.sync` or `from roquet import sync`."""

from __future__ import annotations

from roquet.client.sync import MQ, Admin, Consumer, Producer, PullConsumer, Received, connect

__all__ = ["MQ", "Admin", "Consumer", "Producer", "PullConsumer", "Received", "connect"]
