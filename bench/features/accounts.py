"""What accounts cost the fast path: plain sends fed to a broker with and without them.

`python -m bench.features.accounts`: no sockets and no load generator, so that nothing but the
frames is in the figure: the loop's own CPU time for reading, checking, storing and answering, the
median of many reads.
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path

from roquet.acl.files import AclConfig
from roquet.acl.signature import sign
from roquet.broker.app import Broker, build
from roquet.broker.config import BrokerConfig, IdentityConfig, ListenConfig, settled
from roquet.model.topic import TopicConfig
from roquet.remoting.codec import encode
from roquet.store.settings import StoreConfig
from roquet.testing.cluster import send_command

KEY, SECRET = "bench-producer", "secret-of-bench"
ACCOUNTS = f"accounts:\n- {{accessKey: {KEY}, secretKey: {SECRET}, topicPerms: [Bench=PUB]}}\n"
CONNECTION = 2**40
READS = 4_000
HOST = bytes((127, 0, 0, 1, 0, 0, 1, 1))


def frames(count: int, *, signed: bool) -> bytes:
    """Return so many sends with 1 KiB bodies, one behind the other."""
    found: list[bytes] = []
    for number in range(count):
        text = f"UNIQ_KEY\x017F000001{number:024X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
        command = send_command("Bench", b"x" * 1024, number % 4, text)
        command = dataclasses.replace(command, opaque=number + 1)
        found.append(encode(sign(command, KEY, SECRET.encode()) if signed else command))
    return b"".join(found)


def make(folder: Path, *, accounts: bool, fast: bool) -> Broker:
    """Build a broker over a folder."""
    (folder / "plain_acl.yml").write_text(ACCOUNTS)
    config = BrokerConfig(
        identity=IdentityConfig(name="bench", ip1="127.0.0.1"),
        server=ListenConfig(port=0, bind_address="127.0.0.1", fast_path=fast),
        store=StoreConfig(root=str(folder / "store"), commit_log_file_bytes=1 << 28),
        acl=AclConfig(enabled=accounts, file=str(folder / "plain_acl.yml")),
    )
    return build(settled(config, from_file=False))


async def measure(count: int, *, accounts: bool) -> float:
    """Return microseconds of the loop's CPU a message, `count` of them a read."""
    with tempfile.TemporaryDirectory(prefix="roquet-accounts-") as folder:
        broker = make(Path(folder), accounts=accounts, fast=True)
        async with broker.app:
            broker.metadata.topics.put(TopicConfig(name="Bench", read_queues=4, write_queues=4))
            # The core takes no send for a topic that a crash would forget.
            await broker.metadata.topics.persist()
            native, data = broker.path.native, memoryview(frames(count, signed=accounts))
            native.open(CONNECTION, HOST, True)
            costs: list[int] = []
            for number in range(READS):
                began_ns = time.thread_time_ns()
                came = broker.path.feed(CONNECTION, data, time.monotonic_ns() // 1_000_000)
                took_ns = time.thread_time_ns() - began_ns
                # Otherwise the log was being written to, and the frames went to the processors.
                if isinstance(came, bytes):
                    costs.append(took_ns)
                native.idle(CONNECTION)
                if number % 50 == 0:
                    await asyncio.sleep(0.002)
            assert len(costs) > READS // 10, "hardly anything took the fast path"
            return statistics.median(costs) / 1000 / count


def main() -> None:
    """Measure and print."""
    for count in (32, 1):
        without = asyncio.run(measure(count, accounts=False))
        with_them = asyncio.run(measure(count, accounts=True))
        print(f"{count:>3} a read: {without:.1f} us a message, with accounts {with_them:.1f} us")


if __name__ == "__main__":
    main()
