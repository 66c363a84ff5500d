"""`override` for type checkers, also where the running Python lacks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from typing_extensions import override

    _Method = TypeVar("_Method", bound=Callable[..., object])
else:

    def override(method: _Method) -> _Method:
        """Return the method as it is."""
        return method


__all__ = ["override"]
