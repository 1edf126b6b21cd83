"""What customers of *agent-turns* ask for: first message, state of the order, and script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from packing.sources.samples.dice import Dice
from packing.sources.samples.orders import (
    address_script,
    cancel_script,
    late_parcel_script,
    price_script,
    setup_address,
    setup_cancel,
    setup_late_parcel,
    setup_price,
)
from packing.sources.samples.returns import (
    damaged_script,
    exchange_script,
    late_return_script,
    return_script,
    setup_damaged,
    setup_exchange,
    setup_late_return,
    setup_return,
)
from packing.sources.samples.store import Store
from packing.sources.samples.talk import Talk


@dataclass(frozen=True)
class Request:
    """``opening``: wordings of the first message; ``setup`` arranges the order of a task;
    ``script`` plays one try, breaking one rule where its second argument (careless) is true.
    """

    opening: tuple[str, ...]
    setup: Callable[[Store, Dice], None]
    script: Callable[[Talk, bool], None]


REQUESTS = (
    Request(
        ("Hello, I would like to return the {item} from my order {order}. It is not right for me.",
         "Hi! I bought the {item} (order {order}), but I expected something else. Can I "
         "return that?"),
        setup_return, return_script,
    ),
    Request(
        ("Hi, please cancel my order {order}. I ordered it by mistake.",
         "Good morning. I found the {item} somewhere else, can you cancel order {order}?"),
        setup_cancel, cancel_script,
    ),
    Request(
        ("Where is my parcel? Order {order} should have been here days ago.",
         "Hello, my order {order} with the {item} has still not arrived and I leave for a hike "
         "soon."),
        setup_late_parcel, late_parcel_script,
    ),
    Request(
        ("Hi there, I ordered the {item} too small in order {order}. Could I have size XL?",
         "Size {size} of the {item} is too tight, I would like to swap it for an XL. The order is "
         "{order}."),
        setup_exchange, exchange_script,
    ),
    Request(
        ("I just saw that the price of the {item} is lower now than when I placed order {order}. "
         "Do I get something back?",
         "Hello! You lowered the price of the {item} right after my order {order}. Can I have "
         "the difference?"),
        setup_price, price_script,
    ),
    Request(
        ("I got the {item} from order {order} with a defect. What can you do?",
         "Hi, there is some damage on the {item} that came with order {order}."),
        setup_damaged, damaged_script,
    ),
    Request(
        ("I am moving and need order {order} to go to my new address.",
         "Hello, can you change the address of my order {order}? I typed in the old one."),
        setup_address, address_script,
    ),
    Request(
        ("I want to give back the {item} from order {order}, all unused.",
         "Hi, I forgot to send back the {item} from order {order}. Can I still return it?"),
        setup_late_return, late_return_script,
    ),
)  # fmt: skip
