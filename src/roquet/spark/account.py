"""What this process signs its requests with: keys of its environment, never of an option.

Options are shown in Spark's pages, plans and event logs; each process reads its own environment.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from roquet.acl.credentials import from_environment

if TYPE_CHECKING:
    from roquet.acl.credentials import Credentials
    from roquet.spark.options import Wire


def account(wire: Wire) -> Credentials | None:
    """Return the credentials of a cluster, None where none are set and none are named.

    Raises UsageError for a name without keys.
    """
    return from_environment(os.environ, wire.credentials)
