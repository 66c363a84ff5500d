"""`override` for Python 3.11, which lacks `typing.override`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import override
else:

    def override(method: Callable[..., object]) -> Callable[..., object]:
        """Mark a method that replaces one of a base class; type checkers look at it."""
        return method


__all__ = ["override"]
