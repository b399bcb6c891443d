"""A workflow with tasks of every origin, whose journal is kept as a Python of each kind wrote it (tests/golden)."""

import asyncio
from dataclasses import dataclass

from holdfast import ask, step, workflow

charged: list[str] = []


@dataclass
class Order:
    """What is charged."""

    id: str


@step
async def charge(order: Order) -> Order:
    charged.append(order.id)
    return order


async def check(order: Order) -> None:
    await charge(Order(f"{order.id} checked"))
    await ask(order.id, str)


async def serve(id: str) -> str:
    order = await charge(Order(id))
    await asyncio.wait_for(check(order), 3600)
    return order.id


@workflow
async def serves() -> list[str]:
    found = await asyncio.gather(serve("a"), asyncio.wait_for(serve("b"), 3600))
    async with asyncio.TaskGroup() as group:
        last = group.create_task(serve("c"), name="the last")
    return [*found, last.result()]
