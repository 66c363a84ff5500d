"""Changes of a database's table, as Debezium sends them, for tests of the job `cdc`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

Row = dict[str, Any]


class Database:
    """A table that changes, and the rows that it has."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}

    def changes(self, rng: random.Random, count: int) -> dict[int, list[bytes]]:
        """Make random changes and return their envelopes by queue; a key's are all in one."""
        made: dict[int, list[bytes]] = {0: [], 1: []}
        for _ in range(count):
            key = rng.randrange(12)
            before = self.rows.get(key)
            if before is not None and rng.random() < 0.3:
                del self.rows[key]
                made[key % 2] += [envelope("d", before, None), b"null"]
                continue
            after = {"id": key, "name": f"n{rng.randrange(99)}", "total sum": rng.randrange(9) / 2}
            self.rows[key] = after
            made[key % 2].append(envelope("c" if before is None else "u", before, after))
        return made


def envelope(op: str, before: Row | None, after: Row | None, *, within: bool = True) -> bytes:
    """Return a body as Debezium writes it, within its `payload` or bare."""
    found = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"table": "t"}}
    return json.dumps({"schema": {}, "payload": found} if within else found).encode()
