"""Servers of RocketMQ that have no twin of ours: a controller, its broker, a container."""

from __future__ import annotations

import dataclasses
import random
from functools import partial
from typing import TYPE_CHECKING

from interop_world import registered, until
from roquet.testing.java import (
    BrokerPlan,
    free_port,
    java_broker,
    java_container,
    java_name_server,
)

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.java import Process

CLUSTER = "Foreign"
ALONE = "alone"
"""The broker whose role the controller gives."""
CONTAINED = "contained"
"""The broker that the container is told to start."""


@dataclasses.dataclass
class RocketmqWorld:
    """A name server with a controller in it, a broker in controller mode, and a container."""

    namesrv: str
    processes: list[Process]
    facts: dict[str, str]
    """What the arguments of commands may name: `{controller}`, `{contained_file}` and the like."""

    @classmethod
    def start(cls, jars: Path, folder: Path) -> RocketmqWorld:
        chance = random.Random()
        ports = [free_port(chance) for _ in range(6)]
        namesrv, controller, container = (f"127.0.0.1:{port}" for port in ports[:3])
        controlling = {
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": f"n0-{controller}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": str(folder / "controller"),
        }
        common = {"brokerClusterName": CLUSTER, "timerWheelEnable": "true"}
        controlled = {
            **common,
            "timerRocksDBEnable": "true",
            "compactionMappedFileSize": str(1024 * 1024),
            "enableControllerMode": "true",
            "controllerAddr": controller,
            "brokerId": "-1",
            "brokerRole": "SLAVE",
        }
        folder.mkdir(parents=True, exist_ok=True)
        alone = BrokerPlan(ALONE, ports[3], namesrv, folder / "store-alone", controlled)
        second = BrokerPlan(ALONE, ports[4], namesrv, folder / "store-second", controlled)
        contained = BrokerPlan(CONTAINED, ports[5], namesrv, folder / "store-contained", common)
        world = cls(
            namesrv=namesrv,
            processes=[
                java_name_server(jars, folder / "namesrv", ports[0], controlling),
                java_broker(jars, folder / "broker", alone),
                java_container(jars, folder / "container", ports[2], namesrv),
            ],
            facts={
                "cluster": CLUSTER,
                "controller": controller,
                "container": container,
                "folder": str(folder),
                "alone": alone.address,
                "second": second.address,
                "contained": contained.address,
                "second_file": str(second.write(folder)),
                "contained_file": str(contained.write(folder)),
            },
        )
        try:
            for process in world.processes:
                process.start()
            until("registration", partial(registered, namesrv, ALONE), 90.0)
        except BaseException:
            world.stop()
            raise
        return world

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.kill()
