"""A FastAPI service that takes orders over HTTP and bills them as messages.

    python -m uvicorn --app-dir examples order_service:app

`POST /orders` answers once the broker has the order. A consumer of the same process bills it, and
`GET /orders/{id}` says whether that has happened. At SIGTERM the service takes no more requests,
bills what it has in hand, commits, leaves its group and ends.

`NAMESRV_ADDR` says where the cluster is: 127.0.0.1:9876 unless set.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import FastAPI, HTTPException, Path
from pydantic import BaseModel, Field, ValidationError

import roquet

NAME_SERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC, PRODUCERS, CONSUMERS = "orders", "order-service", "order-billing"
DRAIN_S = 10.0
ID = r"^[A-Za-z0-9-]{1,64}$"


class Order(BaseModel):
    """What a customer sends."""

    id: str = Field(pattern=ID)
    item: str = Field(min_length=1, max_length=200)
    count: int = Field(ge=1, le=1000)


class Placed(BaseModel):
    """The answer to an order: the broker has it."""

    id: str
    message_id: str


class Billing:
    """Bills orders; a message may come twice, so an order that was billed stays as it is."""

    def __init__(self) -> None:
        """Begin with nothing; a real service asks its database."""
        self.billed: dict[str, Order] = {}

    async def bill(self, message: roquet.Received) -> None:
        """Bill one order. An exception would bring the message again, later."""
        try:
            order = Order.model_validate_json(message.body)
        except ValidationError:
            message.dead_letter()  # it will never be an order
            return
        self.billed.setdefault(order.id, order)


class Service:
    """What requests use while the application runs."""

    def __init__(
        self, producer: roquet.Producer, billing: Billing, consuming: asyncio.Task[None]
    ) -> None:
        """Take what `lifespan` has started."""
        self.producer = producer
        self.billing = billing
        self.consuming = consuming


@contextlib.asynccontextmanager
async def lifespan(application: FastAPI) -> AsyncIterator[None]:
    """Connect, consume while requests are served, and end in good order."""
    billing = Billing()
    async with (
        roquet.connect(NAME_SERVERS) as mq,
        mq.producer(PRODUCERS) as producer,
        mq.consumer(CONSUMERS, TOPIC, start="earliest") as consumer,
    ):
        consuming = asyncio.create_task(consumer.run(billing.bill))
        application.state.service = Service(producer, billing, consuming)
        yield
        await consumer.drain(DRAIN_S)
        await consuming  # raises what has ended it early


app = FastAPI(title="Orders", lifespan=lifespan)


def service() -> Service:
    """Return what `lifespan` has made."""
    found: Service = app.state.service
    return found


@app.post("/orders", status_code=202)
async def place(order: Order) -> Placed:
    """Store an order at the broker. It is billed soon after."""
    body = order.model_dump_json().encode()
    try:
        receipt = await service().producer.send(TOPIC, body, keys=[order.id])
    except roquet.OutcomeUnknown as error:
        # Sending it again does no harm: billing takes an order once.
        raise HTTPException(504, f"the order may have been stored: {error}") from error
    except roquet.RoquetError as error:
        raise HTTPException(503, f"the order was not stored: {error}") from error
    return Placed(id=order.id, message_id=receipt.message_id)


@app.get("/orders/{order_id}")
async def billed(order_id: Annotated[str, Path(pattern=ID)]) -> Order:
    """Return an order that was billed; 404 before that."""
    found = service().billing.billed.get(order_id)
    if found is None:
        raise HTTPException(404, "not billed, or not yet")
    return found


@app.get("/health")
async def health() -> dict[str, str]:
    """Say whether orders are billed: a consumer that cannot go on ends its task."""
    if service().consuming.done():
        raise HTTPException(503, "the consumer has ended")
    return {"status": "ok"}
