"""The shop behind *agent-turns*: a customer with two orders, and what each tool answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from packing.sources.samples.dice import Dice

TODAY = date(2025, 6, 18)
RETURN_DAYS = {"basic": 30, "plus": 45, "summit": 60}
LATE_VOUCHER = {"basic": 5, "plus": 10, "summit": 15}
RETURN_LABEL = {"basic": 600, "plus": 0, "summit": 0}


@dataclass
class Store:
    """One customer's view of the shop. Prices are whole cents; ``order`` is what the talk is about.

    The status and dates of ``order`` are set by the request that a task is about.
    """

    customer: dict[str, Any]
    order: dict[str, Any]
    other_order: dict[str, Any]
    product: dict[str, Any]

    @property
    def tier(self) -> str:
        return str(self.customer["tier"])

    @property
    def item(self) -> dict[str, Any]:
        return dict(self.order["items"][0])

    @property
    def price(self) -> int:
        """Cents for one piece of the item."""
        cents: int = round(100 * self.item["price"])
        return cents

    def days_since(self, field: str) -> int:
        return (TODAY - date.fromisoformat(self.order[field])).days

    def customer_result(self) -> str:
        orders = [self.order["order_id"], self.other_order["order_id"]]
        return json.dumps({**self.customer, "orders": orders})


def make_store(dice: Dice) -> Store:
    """A customer, a delivered order of one to three items, and an older order."""
    first, last = dice.pick(FIRST_NAMES), dice.pick(LAST_NAMES)
    city, state, postcode = dice.pick(CITIES)
    customer = {
        "customer_id": f"C{dice.between(10000, 99999)}",
        "name": f"{first} {last}",
        "email": f"{first}.{last}{dice.between(10, 99)}@example.com".lower(),
        "tier": dice.pick(("basic", "basic", "plus", "summit")),
        "points": dice.between(0, 4000),
        "address": {
            "street": f"{dice.between(2, 480)} {dice.pick(STREETS)}",
            "city": city,
            "state": state,
            "postcode": postcode,
        },
        "newsletter": True,
    }
    products = dice.some(PRODUCTS, 5)
    order = _order(dice, products[: dice.between(1, 3)], placed=dice.between(12, 20))
    other = _order(dice, products[3:], placed=dice.between(90, 200))
    name, _, price, colours = products[0]
    item = order["items"][0]
    sizes = {size: dice.between(0, 9) for size in ("S", "M", "L", "XL")}
    product = {
        "product_id": item["product_id"],
        "name": name,
        "colours": list(colours),
        "price": price / 100,
        "stock": sizes,
    }
    return Store(customer, order, other, product)


def place(order: dict[str, Any], status: str, placed: int, delivered: int | None) -> None:
    """Set when ``order`` was placed and delivered (days ago) and its status."""
    order["status"] = status
    order["placed_on"] = days_ago(placed)
    order["delivered_on"] = None if delivered is None else days_ago(delivered)


def days_ago(days: int) -> str:
    return (TODAY - timedelta(days=days)).isoformat()


def dollars(cents: int) -> str:
    return f"${cents / 100:.2f}"


def _order(
    dice: Dice, products: list[tuple[str, str, int, tuple[str, ...]]], placed: int
) -> dict[str, Any]:
    items = [
        {
            "product_id": code,
            "name": name,
            "colour": dice.pick(colours),
            "size": dice.pick(("S", "M", "L")),
            "quantity": 1,
            "price": price / 100,
        }
        for name, code, price, colours in products
    ]
    shipping = dice.pick((0.0, 4.95, 7.95))
    return {
        "order_id": f"L{dice.between(100000, 999999)}",
        "placed_on": days_ago(placed),
        "status": "delivered",
        "delivered_on": days_ago(placed - 5),
        "items": items,
        "shipping": shipping,
        "total": round(sum(p[2] for p in products) / 100 + shipping, 2),
        "payment": f"card ending in {dice.between(1000, 9999)}",
    }


FIRST_NAMES = (
    "Alma", "Boris", "Celia", "Dario", "Edda", "Felix", "Gwen", "Hassan", "Ivy", "Joel", "Kira",
    "Luis", "Maren", "Noor", "Olga", "Pavel",
)  # fmt: skip
LAST_NAMES = (
    "Abbott", "Brandt", "Castillo", "Duarte", "Eriksen", "Fontaine", "Gupta", "Hale", "Ishida",
    "Jensen", "Kaplan", "Lindqvist", "Moreau", "Novak",
)  # fmt: skip
STREETS = ("Birch Street", "Lake Road", "Summit Avenue", "Mill Lane", "Granite Way", "Fern Close")
CITIES = (
    ("Boulder", "CO", "80302"),
    ("Bend", "OR", "97701"),
    ("Asheville", "NC", "28801"),
    ("Duluth", "MN", "55802"),
    ("Flagstaff", "AZ", "86001"),
    ("Burlington", "VT", "05401"),
)
PRODUCTS: tuple[tuple[str, str, int, tuple[str, ...]], ...] = (
    ("Ridgeline rain jacket", "RJ-210", 14900, ("moss", "slate", "rust")),
    ("Alder hiking trousers", "HT-118", 8900, ("sand", "charcoal")),
    ("Cinder down vest", "DV-305", 12900, ("navy", "ember")),
    ("Tarn merino shirt", "MS-042", 6450, ("grey", "pine", "plum")),
    ("Scree trail shoes", "TS-771", 11950, ("black", "clay")),
    ("Kestrel fleece hoodie", "FH-230", 7900, ("teal", "oat")),
    ("Larch insulated gloves", "IG-015", 3450, ("black", "forest")),
    ("Brook wading sandals", "WS-608", 5900, ("stone", "blue")),
    ("Heather wool socks", "WS-104", 1850, ("grey", "heather")),
    ("Basalt climbing trousers", "CT-512", 9450, ("granite", "olive")),
)
