"""Two proxies of ours behind a balancer are restarted in turn while foreign clients send."""

from __future__ import annotations

import contextlib
import json
import random
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from grpc_harness import Peer, ProxyWorld
from roquet.testing.java import fetch_jars, free_port, roquet_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from roquet.testing.java import Process

pytestmark = pytest.mark.timeout(600)
RESTARTS = 4
BETWEEN_S = 2.0
PUMPED = 1 << 16


class Balancer:
    """One address for several servers: each connection goes to one that takes it."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            for port in random.sample(self._ports, len(self._ports)):
                try:
                    server = socket.create_connection(("127.0.0.1", port), timeout=5)
                except OSError:
                    continue
                with contextlib.suppress(OSError), server:
                    _pump(client, server)
                return


def _pump(client: socket.socket, server: socket.socket) -> None:
    """Pass on what each says until one ends."""
    others = {client: server, server: client}
    with selectors.DefaultSelector() as selector:
        for one in others:
            one.settimeout(None)
            selector.register(one, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                heard = key.fileobj
                assert isinstance(heard, socket.socket)
                data = heard.recv(PUMPED)
                if not data:
                    return
                others[heard].sendall(data)


def our_proxy(name: str, folder: Path, name_servers: str, port: int) -> Process:
    """Return a proxy whose routes name the balancer's port."""
    folder.mkdir()
    file = folder / "rmq-proxy.json"
    file.write_text(json.dumps({"useEndpointPortFromRequest": True}))
    arguments = ["-n", name_servers, "-pc", str(file), "--grpc-port", str(port)]
    return roquet_process(name, folder / "home", "proxy", *arguments)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyWorld]:
    built = ProxyWorld.start_our_cluster(fetch_jars(), tmp_path_factory.mktemp("rolling"), "ours")
    yield built
    built.stop()


@pytest.fixture(scope="module")
def proxies(world: ProxyWorld) -> Iterator[tuple[Balancer, list[Process]]]:
    rng = random.Random()
    ports = [free_port(rng), free_port(rng)]
    made = [
        our_proxy(f"p{port}", world.folder / f"p{port}", world.broker.plan.namesrv, port)
        for port in ports
    ]
    for one in made:
        one.start("The Proxy boot success")
    balancer = Balancer(ports)
    yield balancer, made
    balancer.close()
    for one in made:
        one.kill()


@pytest.mark.parametrize("make", ["python", "java", "go", "node"])
def test_rolling_restart_of_proxies_loses_no_send_of_a_foreign_client(
    world: ProxyWorld, proxies: tuple[Balancer, list[Process]], make: str
) -> None:
    balancer, made = proxies
    topic, group = world.topic(f"Rolling{make}", "NORMAL"), world.group(f"rolling-{make}")
    peer = Peer(make, world.folder / f"rolling-{make}", balancer.endpoint)
    reader = Peer("python", world.folder / f"reader-{make}", world.endpoint)
    sent: list[bytes] = []
    failed: list[str] = []
    is_over = threading.Event()

    def keep_sending() -> None:
        while not is_over.is_set():
            bodies = [b"%d" % (len(sent) + number) for number in range(10)]
            answers = peer.send(topic, [{"body": body} for body in bodies])
            failed.extend(str(one["error"]) for one in answers if "error" in one)
            sent.extend(bodies)

    try:
        reader.ask("open", topic=topic, group=group)
        assert reader.receive(group) == []
        load = threading.Thread(target=keep_sending)
        load.start()
        for number in range(RESTARTS):
            time.sleep(BETWEEN_S)
            proxy = made[number % len(made)]
            assert proxy.stop() == 0
            time.sleep(BETWEEN_S)
            proxy.start("The Proxy boot success")
        is_over.set()
        load.join()
        assert failed == []
        assert len(sent) > 100
        came: set[bytes] = set()
        end = time.monotonic() + 120
        while came < set(sent):
            assert time.monotonic() < end, f"{len(came)} of {len(sent)} came"
            for one in reader.receive(group):
                came.add(one["body"])
                reader.ask("ack", group=group, message=one["id"])
        assert came == set(sent)
    finally:
        is_over.set()
        peer.close()
        reader.close()
