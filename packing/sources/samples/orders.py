"""Requests of *agent-turns* about orders on their way: cancel, late parcel, address, price.

Notable:
- each script knows the policy's answer; a careless try breaks one rule
- amounts and days are computed from the store, never written down
"""

from __future__ import annotations

from packing.sources.samples.dice import Dice
from packing.sources.samples.store import LATE_VOUCHER, Store, days_ago, dollars, place
from packing.sources.samples.talk import DONE, Talk


def setup_cancel(store: Store, dice: Dice) -> None:
    place(store.order, "processing", dice.between(0, 2), None)


def cancel_script(talk: Talk, careless: bool) -> None:
    store = talk.store
    talk.fields["total"] = dollars(round(100 * store.order["total"]))
    if not careless:
        talk.say(
            "cancel: offer",
            (
                "The order is still processing, so it can be cancelled as a whole. {total} with "
                "shipping goes back to the {payment}. I need a yes first.",
                "Status: processing. Only whole orders can be cancelled. The refund is {total}. I "
                "list this and wait for a confirmation.",
            ),
            (
                "Your order {order} is still processing, {first}, so I can cancel it. The whole "
                "order would be cancelled and {total} paid back to your {payment}. Shall I do it?",
                "I can cancel order {order} for you. Please note that this covers the whole order. "
                "You get {total} back on your {payment}. Is that okay?",
            ),
        )
        talk.confirm()
    talk.call(
        "cancel_order",
        {"order_id": store.order["order_id"], "reason": "customer request"},
        {"status": "cancelled", "refund": store.order["total"]},
        (
            "The order is processing, so I cancel {order}; {total} is paid back.",
            "Everything is clear. I call cancel_order for {order}.",
        ),
    )
    talk.say(
        "cancel: done",
        DONE,
        (
            "Order {order} is cancelled, {first}. {total} will be back on your {payment} within "
            "five working days.",
            "Done. Your order is cancelled and {total} is on its way back to your {payment}; that "
            "takes up to five working days.",
        ),
    )


def setup_late_parcel(store: Store, dice: Dice) -> None:
    place(store.order, "shipped", dice.between(12, 15), None)
    store.order["promised_on"] = days_ago(dice.between(4, 9))


def late_parcel_script(talk: Talk, careless: bool) -> None:
    store = talk.store
    late = store.days_since("promised_on")
    amount = LATE_VOUCHER[store.tier] + (5 if careless else 0)
    arrival = days_ago(-2)
    talk.fields |= {
        "late": str(late),
        "voucher": dollars(100 * amount),
        "promised": store.order["promised_on"],
        "arrival": arrival,
    }
    talk.call(
        "check_delivery",
        {"order_id": store.order["order_id"]},
        {
            "carrier": "Pinewood Post",
            "promised_on": store.order["promised_on"],
            "estimate": arrival,
            "events": ["label created", "picked up", "arrived at sorting centre", "delayed"],
        },
        (
            "The order is shipped but not delivered. Before I answer I look up the delivery.",
            "I must not guess the date. check_delivery has the promised date and the estimate.",
        ),
    )
    talk.say(
        "late parcel: offer",
        (
            "Promised for {promised}, today is 2025-06-18, so it is {late} days late. That is "
            "between 4 and 9 days: an apology and a voucher. For {tier} this is {voucher}. The new "
            "estimate is {arrival}.",
            "{late} days late. Not lost yet, that starts at 10 days. The voucher for a {tier} "
            "member is {voucher}, only one for this order.",
        ),
        (
            "I am sorry, {first}, your parcel is {late} days late. It is now expected on "
            "{arrival}. As an apology I can send you a voucher of {voucher}. Would you like it?",
            "Your parcel was promised for {promised} and got stuck at a sorting centre. The new "
            "date is {arrival}. I apologise for the wait and would like to offer you a voucher of "
            "{voucher}. Shall I send it?",
        ),
    )
    talk.confirm()
    talk.call(
        "send_voucher",
        {
            "customer_id": store.customer["customer_id"],
            "amount": amount,
            "order_id": store.order["order_id"],
        },
        {"status": "sent", "to": store.customer["email"]},
        ("{first} said yes, so I send {voucher} by email.", "Clear yes. Voucher: {voucher}."),
    )
    talk.say("late parcel: done", DONE, VOUCHER_DONE)


def setup_address(store: Store, dice: Dice) -> None:
    place(store.order, dice.pick(("processing", "packed")), dice.between(1, 2), None)


def address_script(talk: Talk, careless: bool) -> None:
    store = talk.store
    status = store.order["status"]
    talk.fields |= {"street": "17 Juniper Court", "status": status}
    talk.say(
        "address: ask",
        (
            "The order is {status}, so the address can still be changed. I do not have the new "
            "one yet, so I ask for street, city, state and postcode.",
            "{status} orders can get a new address inside the country. Ask for the full address.",
        ),
        (
            "Order {order} is still {status}, {first}, so I can change the address. What is the "
            "new street, city, state and postcode?",
            "No problem, {first}, it has not left our warehouse. Please send me the complete new "
            "address.",
        ),
    )
    city, state, postcode = "Portland", "OR", "97205"
    talk.user("address: give", ADDRESS)
    if not careless:
        talk.say(
            "address: repeat",
            (
                "I have the address. Before I change the order I repeat it and wait for a yes.",
                "Changing an address is a change, so it needs a confirmation first.",
            ),
            (
                "I will send order {order} to {street}, Portland, OR 97205. Is this correct?",
                "Just to be sure: {street}, Portland, OR 97205, for order {order}. Shall I save "
                "it?",
            ),
        )
        talk.confirm()
    address = {"street": "17 Juniper Court", "city": city, "state": state, "postcode": postcode}
    talk.call(
        "update_address",
        {"order_id": store.order["order_id"], **address},
        {"status": "updated", "address": address},
        ("The address is complete, I update order {order}.", "Now I save the new address."),
    )
    talk.say(
        "address: done",
        DONE,
        (
            "Done, {first}. Order {order} goes to {street} in Portland now.",
            "The new address is saved. Your parcel will come to {street}, Portland.",
        ),
    )


def setup_price(store: Store, dice: Dice) -> None:
    days = dice.between(7, 13)
    place(store.order, "delivered", days, days - 5)
    store.product["price"] = round(store.item["price"] - dice.between(5, 18), 2)


def price_script(talk: Talk, careless: bool) -> None:
    store = talk.store
    now = round(100 * store.product["price"])
    difference = store.price - now + (500 if careless else 0)
    talk.fields |= {
        "days": str(store.days_since("placed_on")),
        "now": dollars(now),
        "difference": dollars(difference),
    }
    talk.look_up_product()
    talk.say(
        "price: offer",
        (
            "The order was placed {days} days ago, within 14 days. Paid {price}, now {now}: the "
            "difference is {difference} for one piece. I offer it and wait for a yes.",
            "{price} then, {now} today. {days} days since the order, so {difference} can be paid "
            "back, once.",
        ),
        (
            "You are right, {first}: the price of the {item} is {now} today. I can pay the "
            "difference of {difference} back to your {payment}. Shall I?",
            "Thanks for telling us. You paid {price}, the price is {now} now, so you can have "
            "{difference} back on your {payment}. Is that fine?",
        ),
    )
    talk.confirm()
    talk.call(
        "issue_refund",
        {
            "order_id": store.order["order_id"],
            "amount": difference / 100,
            "reason": "price change",
        },
        {"status": "refunded", "amount": difference / 100},
        ("There is a yes, so I pay back {difference}.", "Refund of {difference} for {order}."),
    )
    talk.say(
        "price: done",
        DONE,
        ("{difference} is on its way to your {payment}, {first}. It takes up to five working "
         "days.", "Done! You will see {difference} on your {payment} within five working days."),
    )  # fmt: skip


VOUCHER_DONE = (
    "The voucher of {voucher} is in your inbox, {first}. Your parcel should arrive on {arrival}.",
    "I have sent the voucher of {voucher} to your email address. Thank you for your patience.",
)
ADDRESS = (
    "It is 17 Juniper Court, Portland, OR 97205.",
    "17 Juniper Court in Portland, Oregon, postcode 97205. I moved last week.",
)
