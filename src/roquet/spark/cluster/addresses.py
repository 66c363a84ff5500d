"""The addresses of a broker. Quick to import: Spark does so to find the formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.model.route import BrokerData


def addresses_of(broker: BrokerData) -> tuple[str, ...]:
    """Return the addresses of a broker, the master's first."""
    return tuple(broker.addresses[number] for number in sorted(broker.addresses))
