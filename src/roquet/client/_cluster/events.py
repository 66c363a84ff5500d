"""What a client tells the application by itself: errors in the background, lost connections."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.errors import RoquetError

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Events:
    """The application's functions. What they raise is logged."""

    on_error: Callable[[RoquetError], None] | None = None
    on_disconnect: Callable[[str], None] | None = None

    def failed(self, error: RoquetError) -> None:
        """Tell of an error that no call raises."""
        if self.on_error is not None:
            try:
                self.on_error(error)
            except Exception:
                log.exception("on_error failed")

    def disconnected(self, address: str) -> None:
        """Tell that a connection to `ip:port` is gone."""
        if self.on_disconnect is not None:
            try:
                self.on_disconnect(address)
            except Exception:
                log.exception("on_disconnect failed")
