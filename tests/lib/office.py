"""Workflows for the tests of the web page and the HTTP API."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import ask, emit, note, receive, step, workflow

undone: list[str] = []


@dataclass
class Shipping:
    carrier: str
    insured: bool = False


@step
def charge(order: str, cents: int) -> str:
    return f"receipt of {order}"


@charge.undo
def refund(receipt: str, order: str, cents: int) -> None:
    undone.append(receipt)


@step
def ship(order: str, carrier: str) -> str:
    return f"{order} by {carrier}"


@workflow(name="office-order")
def fulfil(order: str, cents: int) -> str:
    """Charges, asks a person, ships."""
    charge(order, cents)
    note("charged")
    chosen = ask("Ship it?", Shipping)
    emit(chosen.carrier)
    return ship(order, chosen.carrier)


@workflow(name="office-patient")
def patient(topic: str) -> str:
    """Waits for a message."""
    return str(receive(topic))


@workflow(name="office-broken")
def broken() -> None:
    """Fails."""
    raise ValueError("out of stock")
