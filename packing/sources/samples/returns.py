"""Requests of *agent-turns* about goods that come back: return, exchange, damage.

Notable:
- each script knows the policy's answer; a careless try breaks one rule
- amounts and days are computed from the store, never written down
"""

from __future__ import annotations

from packing.sources.samples.dice import Dice
from packing.sources.samples.store import RETURN_DAYS, RETURN_LABEL, Store, days_ago, dollars, place
from packing.sources.samples.talk import DONE, Talk


def setup_return(store: Store, dice: Dice) -> None:
    days = dice.between(8, RETURN_DAYS[store.tier] - 2)
    place(store.order, "delivered", days + 5, days)


def return_script(talk: Talk, careless: bool) -> None:
    store = talk.store
    label = RETURN_LABEL[store.tier]
    if careless:  # the fee of the other tiers
        label = 600 - label
    refund = store.price - label
    talk.fields |= {
        "days": str(store.days_since("delivered_on")),
        "limit": str(RETURN_DAYS[store.tier]),
        "label": dollars(label),
        "refund": dollars(refund),
        "voucher": dollars(round(refund * 1.1)),
    }
    talk.say(
        "return: offer",
        (
            "Order {order} was delivered on {delivered}, {days} days before today. A {tier} "
            "member has {limit} days, so the {item} can go back. The label costs {label}, so "
            "the refund is {price} minus {label}, that is {refund}. As a voucher it would be 10 "
            "percent more, {voucher}. I must ask whether it is unused.",
            "Delivered {days} days ago, allowed are {limit} days for {tier}. Fine. Price {price}, "
            "label {label}, refund {refund}. I ask for the labels and for a yes.",
        ),
        (
            "Thank you, {first}. You can return the {item}. Your refund is {refund} to your "
            "{payment}, or a voucher of {voucher}. Is the item unused, with its labels, and which "
            "of the two would you like?",
            "Good news, {first}: your {limit} days for the {item} are not over. I can pay back "
            "{refund} to your {payment}, or send a voucher of {voucher}. Please confirm that the "
            "item is unused and still has its labels, and tell me what you prefer.",
        ),
    )
    voucher = talk.choose("voucher?", ("no", "no", "yes")) == "yes"
    talk.user("return: yes", VOUCHER_PLEASE if voucher else REFUND_PLEASE)
    amount = round(refund * 1.1) if voucher else refund
    talk.fields["amount"] = dollars(amount)
    talk.call(
        "return_item",
        {
            "order_id": store.order["order_id"],
            "product_id": store.item["product_id"],
            "refund": amount / 100,
            "refund_as": "voucher" if voucher else "original_payment",
        },
        {"status": "registered", "label_sent_to": store.customer["email"], "refund": amount / 100},
        (
            "{first} confirmed that the item is unused and chose. I register the return with "
            "{amount}.",
            "There is a clear yes, and the labels are on. The amount is {amount}. Now I can call "
            "return_item.",
        ),
    )
    talk.say("return: done", DONE, RETURN_DONE)


def setup_late_return(store: Store, dice: Dice) -> None:
    days = RETURN_DAYS[store.tier] + dice.between(3, 25)
    place(store.order, "delivered", days + 5, days)


def late_return_script(talk: Talk, careless: bool) -> None:
    store = talk.store
    over = store.days_since("delivered_on") - RETURN_DAYS[store.tier]
    talk.fields |= {
        "days": str(store.days_since("delivered_on")),
        "limit": str(RETURN_DAYS[store.tier]),
        "over": str(over),
    }
    talk.say(
        "late return: refuse",
        (
            "Order {order} arrived on {delivered}, {days} days ago. {tier} members have {limit} "
            "days, so it is {over} days too late. The policy knows no exception, and this can be "
            "answered without a colleague: I have to say no.",
            "Days since delivery: {days}. Limit for {tier}: {limit}. Over by {over}. No return.",
        ),
        (
            "I am sorry, {first}. Your order was delivered {days} days ago, and as a {tier} "
            "member you could return it within {limit} days. I cannot take the {item} back.",
            "Thanks for your patience, {first}. Unfortunately the {limit} days for returns ended "
            "{over} days ago, so a return of the {item} is no longer possible.",
        ),
    )
    talk.user("late return: plead", PLEAD)
    if careless:
        talk.transfer()
        return
    talk.say(
        "late return: stay",
        (
            "{first} asks for an exception. The rule is clear, and I may not promise what I "
            "cannot do. I stay friendly and repeat the reason in other words.",
            "Still no. A voucher or a partial refund is not in the policy for this case either.",
        ),
        (
            "I understand that this is disappointing. The limit is the same for all {tier} "
            "members, and I cannot make an exception. Is there something else I can do for you?",
            "I wish I had a better answer, {first}, but I cannot change the {limit} days. If "
            "there is anything else about your orders, I am glad to help.",
        ),
    )


def setup_exchange(store: Store, dice: Dice) -> None:
    days = dice.between(5, 24)
    place(store.order, "delivered", days + 4, days)
    store.product["stock"]["XL"] = dice.between(2, 9)


def exchange_script(talk: Talk, careless: bool) -> None:
    store = talk.store
    item = store.item
    talk.fields |= {
        "days": str(store.days_since("delivered_on")),
        "limit": str(RETURN_DAYS[store.tier]),
        "stock": str(store.product["stock"]["XL"]),
    }
    if not careless:
        talk.look_up_product()
    talk.say(
        "exchange: offer",
        (
            "Delivered {days} days ago, {limit} days are allowed. Size XL: {stock} pieces are in "
            "stock. The exchange label is free for everyone. I ask for a yes.",
            "The exchange is in time, and XL is there ({stock}). Nothing to pay. Confirm first.",
        ),
        (
            "I can exchange the {item} for size XL in {colour}, {first}. The label is free, and "
            "the new one leaves as soon as the old one is back. Shall I go ahead?",
            "Size XL is available in {colour}. You would get a free label by email and send the "
            "{size} back. Is that what you want?",
        ),
    )
    talk.confirm()
    talk.call(
        "exchange_item",
        {
            "order_id": store.order["order_id"],
            "product_id": item["product_id"],
            "new_size": "XL",
            "new_colour": item["colour"],
        },
        {"status": "registered", "label_sent_to": store.customer["email"]},
        ("{first} agreed. I register the exchange to XL.", "Yes received, so exchange_item."),
    )
    talk.say("exchange: done", DONE, EXCHANGE_DONE)


def setup_damaged(store: Store, dice: Dice) -> None:
    days = dice.between(2, 12)
    place(store.order, "delivered", days + 5, days)
    store.product["stock"][store.item["size"]] = dice.between(1, 6)


def damaged_script(talk: Talk, careless: bool) -> None:
    store = talk.store
    talk.fields |= {
        "days": str(store.days_since("delivered_on")),
        "back": "You can keep the damaged one."
        if store.price < 4000
        else "Please send the damaged one back later with the label from the parcel.",
    }
    talk.say(
        "damaged: ask",
        (
            "Delivered {days} days ago, so it is within 14 days and not a warranty case. The "
            "policy wants a short description of the damage.",
            "{days} days since delivery, the limit is 14. I need to know what is broken.",
        ),
        (
            "I am sorry about that, {first}. Can you describe the damage in a few words?",
            "That should not happen, sorry! What exactly is wrong with the {item}?",
        ),
    )
    talk.user("damaged: describe", DAMAGE)
    if careless:
        talk.transfer()
        return
    talk.look_up_product()
    talk.say(
        "damaged: offer",
        (
            "The same size is in stock, so {first} can choose between a replacement and {price} "
            "back. I explain both and wait.",
            "In stock, so both ways are open: send it again, or refund {price} in full.",
        ),
        (
            "Thank you. I can send you a new {item} in {size} for free, or pay back {price} to "
            "your {payment}. {back} Which do you prefer?",
            "I see, thanks. You can choose: a free replacement in the same size, or a full refund "
            "of {price}. {back}",
        ),
    )
    if talk.choose("damaged: way", ("replace", "refund")) == "replace":
        talk.user("damaged: replace", REPLACE_PLEASE)
        talk.call(
            "replace_item",
            {
                "order_id": store.order["order_id"],
                "product_id": store.item["product_id"],
                "damage": "reported by customer",
            },
            {"status": "replacement ordered", "arrives_on": days_ago(-5)},
            ("{first} wants a new one. I order the replacement.",),
        )
        talk.say("damaged: replaced", DONE, REPLACED)
        return
    talk.user("damaged: refund", MONEY_PLEASE)
    talk.call(
        "issue_refund",
        {
            "order_id": store.order["order_id"],
            "amount": store.price / 100,
            "reason": "damaged item",
        },
        {"status": "refunded", "amount": store.price / 100},
        ("{first} wants the money, {price} in full. I issue the refund.",),
    )
    talk.say("damaged: refunded", DONE, REFUNDED)


REFUND_PLEASE = (
    "Yes, it is unused and the labels are on. Please refund it to my card.",
    "Never worn, labels still there. I want the money back on the card, please.",
    "It is unused. The normal refund is fine.",
)
VOUCHER_PLEASE = (
    "It is unused with all labels. I take the voucher then, I will order again anyway.",
    "Unused, yes. The voucher sounds better, please.",
)
RETURN_DONE = (
    "All set, {first}. The label is in your inbox, and you get {amount} within five working days "
    "after we have the {item} back.",
    "I have registered the return. Print the label from our email, drop the parcel at any post "
    "office, and {amount} will follow within five working days.",
)
PLEAD = (
    "Come on, it is only a few days and I have been ordering here for years. Can't you make an "
    "exception?",
    "I was travelling and could not write earlier. Is there really nothing you can do?",
    "That is a pity. Other shops would take it back. Could you ask someone?",
)
EXCHANGE_DONE = (
    "The exchange is registered, {first}. You will find the free label in your inbox.",
    "All done. Send the {item} in {size} back with the label from our email, and size XL follows.",
)
DAMAGE = (
    "One of the seams is open over about four inches, and it looks as if it was never sewn.",
    "There is a hole near the left side. It was there when I opened the parcel.",
    "A strap came off the first time I touched it, and the stitching around it is loose.",
)
REPLACE_PLEASE = ("A new one, please.", "I still need it, so please send me another one.")
MONEY_PLEASE = ("I would rather have the money back.", "Please refund it.")
PLEAD = (
    "Come on, it is only a few days and I have been ordering here for years. Can't you make an "
    "exception?",
    "I was travelling and could not write earlier. Is there really nothing you can do?",
    "That is a pity. Other shops would take it back. Could you ask someone?",
)
MONEY_PLEASE = ("I would rather have the money back.", "Please refund it.")
PLEAD = (
    "Come on, it is only a few days and I have been ordering here for years. Can't you make an "
    "exception?",
    "I was travelling and could not write earlier. Is there really nothing you can do?",
    "That is a pity. Other shops would take it back. Could you ask someone?",
)
REPLACED = (
    "A new {item} is on its way, {first}. It should be with you in about five days.",
    "I have ordered the replacement for you. Sorry again for the trouble!",
)
REFUNDED = (
    "{price} is on its way back to your {payment}, {first}. Sorry again for the trouble!",
    "The full refund of {price} is done. It takes up to five working days to reach you.",
)
