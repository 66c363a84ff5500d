"""What no test may leave behind for the next one in its process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# Asserts of shared stories say their values, as those of test files do.
pytest.register_assert_rewrite("grpc_stories", "grpc_light_stories")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Give the root logger its level and handlers back: a command run in process sets both."""
    root = logging.getLogger()
    level, handlers = root.level, [*root.handlers]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
