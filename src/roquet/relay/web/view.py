"""What there is to see of a running relay: plain values, read when asked."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roquet.relay.master.machine import Machine, Stages
    from roquet.relay.process import MainProcess
    from roquet.relay.servers import Entry
    from roquet.relay.traffic import RelayTraffic
    from roquet.relay.worker import WorkerService


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerRow:
    """One inner server that is listed or registered. Counters begin with its registration."""

    id: int
    type: int
    name: str
    address: str
    """`host:port`; of a server that dials the relay, where its link comes from."""
    state: str
    """`registered`, `draining`, `registering`, `connected`, `dialling`, `waiting` (to be dialled
    again), `forgotten` (until the next refresh) or `awaited` (it dials)."""
    worker: int
    failure: str
    """Why it is not there, when it is not."""
    online: int
    max_online: int
    in_packets: int
    in_bytes: int
    out_packets: int
    out_bytes: int
    refused: int
    """Packets for it that were refused."""
    queue_bytes: int
    pending: int
    """Requests that it has to answer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """One worker service."""

    index: int
    servers: int
    mailbox: int
    mailbox_refused: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HealthRow:
    """Whether the relay may be sent work, and where its configuration comes from."""

    ready: bool
    config_source: str
    """`server`, `copy` or nothing."""
    config_version: int | None
    config_failure: str
    """Why the last question to the configuration server failed."""
    listed: int
    registered: int


class View:
    """A snapshot of the relay's tables, for the HTTP side, metrics and tests."""

    def __init__(
        self,
        machine: Machine,
        workers: Sequence[WorkerService],
        traffic: RelayTraffic,
        process: MainProcess,
        worker_count: int,
    ) -> None:
        """Look at these; change nothing."""
        self._machine = machine
        self._workers = workers
        self._exchange = traffic.exchange
        self._process = process
        self._worker_count = worker_count

    def health(self) -> HealthRow:
        """Return whether there is a configuration, and from where."""
        machine = self._machine
        return HealthRow(
            ready=machine.version is not None,
            config_source=machine.config_source,
            config_version=machine.version,
            config_failure=machine.config_failure,
            listed=len(machine.listed),
            registered=len(machine.present),
        )

    def ids(self) -> list[int]:
        """Return the ids of all listed servers, ascending."""
        return sorted(self._machine.listed)

    def servers(self, ids: Iterable[int] | None = None) -> list[ServerRow]:
        """Return all listed servers by id, or those of `ids` that are listed."""
        stages = self._machine.stages()
        entries = map(self._machine.listed.get, self.ids() if ids is None else ids)
        return [self._row(entry, stages) for entry in entries if entry is not None]

    def server(self, server_id: int) -> ServerRow | None:
        """Return one server; None when it is not listed."""
        return next(iter(self.servers((server_id,))), None)

    def by_state(self) -> Mapping[str, int]:
        """Return how many servers are in each state."""
        return self._machine.by_state()

    def workers(self) -> list[WorkerRow]:
        """Return the worker services in order."""
        rows: list[WorkerRow] = []
        for worker in self._workers:
            mailbox = self._process.mailboxes[worker.name]
            rows.append(
                WorkerRow(
                    index=worker.index,
                    servers=len(worker.owned),
                    mailbox=len(mailbox),
                    mailbox_refused=mailbox.refused,
                )
            )
        return rows

    def counters(self) -> Mapping[str, int]:
        """Return what happened to packets so far, by name."""
        return self._exchange.counters()

    def waiting(self) -> Mapping[str, int]:
        """Return how many wait in each of the master's lists."""
        return self._machine.waiting()

    def queued_bytes(self) -> int:
        """Return the bytes in all queues."""
        return self._exchange.queued()

    def _row(self, entry: Entry, stages: Stages) -> ServerRow:
        machine = self._machine
        worker = entry.id % self._worker_count
        owned = self._workers[worker].owned.get(entry.id)
        present = machine.present.get(entry.id)
        traffic = self._exchange.server(entry.id) or (0, 0, False, 0, 0, 0, 0, 0)
        address = f"{entry.host}:{entry.port}" if entry.host else ""
        if not address and owned is not None:
            address = owned.link.address
        return ServerRow(
            id=entry.id,
            type=entry.type,
            name=entry.name,
            address=address,
            state=machine.state(entry.id, stages),
            worker=worker,
            failure="" if present is not None else machine.failures.get(entry.id, ""),
            online=0 if owned is None else owned.online,
            max_online=0 if present is None else present.server.max_online,
            in_packets=traffic[3],
            in_bytes=traffic[4],
            out_packets=traffic[5],
            out_bytes=traffic[6],
            refused=traffic[7],
            queue_bytes=traffic[0],
            pending=traffic[1],
        )
