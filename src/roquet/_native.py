"""The one door to the compiled core, so that tools which read imports can see who uses it."""

from __future__ import annotations

# A star, so that what the core already has can be used while the rest is being written.
from roquet.roquet_native import *  # noqa: F403
