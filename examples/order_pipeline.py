"""Orders from a shop's database to billing: a transaction, retries, dead letters mended by hand.

    python examples/order_pipeline.py

`NAMESRV_ADDR` says where the cluster is: 127.0.0.1:9876 unless set.

1. The shop writes each order to its database and sends it in a transaction: consumers see a message
   if and only if the database has the order, also when the shop dies between the two.
2. Billing handles each order. A payment that fails for now is tried again by the broker; an order
   that can never be billed becomes a dead letter at once.
3. Somebody mends the dead letter and sends it again.

The program ends with exit code 0 when every order of the database was billed once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import roquet

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME_SERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TIME_S = 180.0
"""For all of it: the broker asks about an open transaction after some seconds, and again later."""


class Shop:
    """The shop's own database."""

    def __init__(self, file: Path) -> None:
        """Open or make it."""
        self._database = sqlite3.connect(file)
        self._database.execute("create table if not exists orders (id text primary key, cents int)")

    def write(self, order: str, cents: int) -> None:
        """Keep an order."""
        with self._database:
            self._database.execute("insert into orders values (?, ?)", (order, cents))

    def orders(self) -> dict[str, int]:
        """Return all orders: id and price."""
        return dict(self._database.execute("select id, cents from orders"))

    async def check(self, message: roquet.StoredMessage) -> roquet.TransactionState:
        """Tell the broker how the work for a message ended, when it was not told."""
        (order,) = message.keys
        is_there = order in self.orders()
        print(f"shop: the broker asks for {order}: {'written' if is_there else 'not written'}")
        return roquet.TransactionState.COMMIT if is_there else roquet.TransactionState.ROLLBACK

    def close(self) -> None:
        """Close it."""
        self._database.close()


class Billing:
    """Bills orders once, however often their message comes."""

    def __init__(self) -> None:
        """Begin with nothing billed."""
        self.bills: dict[str, int] = {}
        self.changed = asyncio.Event()

    async def bill(self, message: roquet.Received) -> None:
        """Handle one message."""
        (order,) = message.keys
        cents = json.loads(message.body)["cents"]
        if not isinstance(cents, int):
            print(f"billing: {order} has the price {cents!r}: to the dead letters")
            message.dead_letter()
            return
        if order.startswith("slow") and message.attempt == 1:
            print(f"billing: no answer for {order}, again later")
            raise ConnectionError("the bank does not answer")
        if self.bills.setdefault(order, cents) != cents:
            raise AssertionError(f"{order} has two prices")
        print(f"billing: {order} billed at attempt {message.attempt}")
        self.changed.set()

    async def until(self, orders: Iterable[str]) -> None:
        """Wait until all of these are billed."""
        wanted = set(orders)
        while not wanted <= self.bills.keys():
            self.changed.clear()
            await self.changed.wait()


async def sell(producer: roquet.TransactionProducer, shop: Shop, topic: str) -> None:
    """Sell five times: in good order, declined, dying half way, with a slow bank, with a bug."""
    body = json.dumps({"cents": 1250}).encode()
    async with await producer.begin(topic, body, keys=["plain"]):
        shop.write("plain", 1250)  # leaving the block commits
    async with await producer.begin(topic, body, keys=["declined"]) as transaction:
        await transaction.rollback()  # nobody will see it
    async with await producer.begin(topic, body, keys=["torn"]) as transaction:
        shop.write("torn", 1250)
        transaction.leave_open()  # as if the shop had died here: the broker will ask `check`
    async with await producer.begin(topic, body, keys=["slow"]):
        shop.write("slow", 1250)
    text = json.dumps({"cents": "12.50"}).encode()
    async with await producer.begin(topic, text, keys=["typed"]):
        shop.write("typed", 1250)


async def mend(mq: roquet.MQ, group: str, topic: str, shop: Shop) -> None:
    """Send the first dead letter of a group again, with the price that the database has."""
    async with (
        mq.producer("mending") as producer,
        mq.consumer(f"{group}-mending", f"%DLQ%{group}", start="earliest") as dead,
    ):
        async for message in dead:
            (order,) = message.keys
            body = json.dumps({"cents": shop.orders()[order]}).encode()
            await producer.send(topic, body, keys=[order])
            print(f"mending: {order} is sent again with the price of the database")
            message.ack()
            return


async def until_there(mq: roquet.MQ, topic: str) -> None:
    """Wait until a topic has a route: that of dead letters is made by the first of them."""
    while topic not in await mq.admin().topics.names():
        await asyncio.sleep(0.2)


async def run(folder: Path) -> bool:
    """Play it; return whether each order of the database was billed, and nothing else."""
    name = uuid.uuid4().hex[:8]  # each run has topics of its own
    topic, group = f"orders-{name}", f"billing-{name}"
    shop, billing = Shop(folder / "shop.db"), Billing()
    async with roquet.connect(NAME_SERVERS) as mq, asyncio.timeout(TIME_S):
        await mq.admin().topics.create(topic, queues=4)
        async with (
            asyncio.TaskGroup() as tasks,
            mq.transaction_producer(f"shop-{name}", shop.check) as producer,
            mq.consumer(group, topic, start="earliest") as consumer,
        ):
            tasks.create_task(consumer.run(billing.bill))
            await sell(producer, shop, topic)
            await billing.until(["plain", "torn", "slow"])
            await until_there(mq, f"%DLQ%{group}")
            await mend(mq, group, topic, shop)
            await billing.until(["typed"])
            await consumer.drain()
    wanted = shop.orders()
    shop.close()
    print(f"billed {sorted(billing.bills)} of {sorted(wanted)}")
    return billing.bills == wanted


def main() -> int:
    """Run in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return 0 if asyncio.run(run(Path(folder))) else 1
        except roquet.RoquetError as error:
            sys.exit(f"order_pipeline: {error}; is a cluster running? try: roquet dev")


if __name__ == "__main__":
    sys.exit(main())
