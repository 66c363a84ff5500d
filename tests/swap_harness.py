"""A broker's store that is opened by one make after the other, for tests beside Java."""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING, Any

from interop_world import has_route, our_broker, our_name_server, registered, until
from roquet.testing.java import BrokerPlan, Process, free_port, java_broker

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.java import Driver


def encoded(body: str, local: str, check: str | None = None) -> dict[str, Any]:
    return {
        "body": base64.b64encode(body.encode()).decode(),
        "keys": body,
        "local": local,
        "check": check,
    }


class Swap:
    """A broker's store that is opened by one make after the other."""

    def __init__(self, jars: Path, driver: Driver, folder: Path) -> None:
        chance = random.Random()
        self.jars, self.driver, self.folder = jars, driver, folder
        port = free_port(chance)
        self.name_server = our_name_server(folder / "namesrv", port)
        self.namesrv = f"127.0.0.1:{port}"
        self.plan = BrokerPlan(
            "tx-swap",
            free_port(chance),
            self.namesrv,
            folder / "store",
            {"compressedRegister": "true"},
        )
        self.running: Process | None = None

    def open(self, make: str) -> None:
        folder = self.folder / make
        if make == "java":
            # Ours has to go on with what it gathered of ends and had not written yet.
            self.running = java_broker(self.jars, folder, self.plan, as_shipped=True)
        else:
            self.running = our_broker(folder, self.plan)
        self.running.start()
        until("registration", lambda: registered(self.namesrv, self.plan.name))

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()
        self.running = None
        until("it is gone", lambda: not has_route(self.namesrv, "TBW102", self.plan.name))
