"""Notes in which order files become durable: what is synced, what is renamed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class DurableCalls:
    """Notes syncs by the name of what is synced, and renames by their target."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, str]] = []
        self._fsync = os.fsync
        self._replace = os.replace
        patch.setattr(os, "fsync", self.fsync)
        patch.setattr(Path, "replace", self._noted_replace())

    def fsync(self, handle: int) -> None:
        """Note a sync; a file that is still empty was synced before it was written."""
        synced = Path(f"/proc/self/fd/{handle}").readlink()
        assert synced.is_dir() or os.fstat(handle).st_size > 0, f"{synced} is synced empty"
        self.made.append(("sync", synced.name))
        self._fsync(handle)

    def _noted_replace(self) -> Callable[[Path, Any], Path]:
        def replace(source: Path, target: Any) -> Path:
            self.made.append(("name", Path(target).name))
            self._replace(source, target)
            return Path(target)

        return replace
