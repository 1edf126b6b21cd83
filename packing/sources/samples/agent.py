"""*agent-turns*: a customer service agent with tools, several tries at each task.

Notable:
- all conversations start with the same long policy and the same tools
- every assistant turn carries its ``reasoning_content``; chat templates that drop it from earlier
  turns make the rows of one conversation branch
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from packing.sources.samples.dice import Dice, Habit
from packing.sources.samples.requests import REQUESTS, Request
from packing.sources.samples.store import Store, make_store
from packing.sources.samples.talk import Talk

N_TASKS = 12
N_TRIALS = 4
ASSETS = Path(__file__).parents[1] / "assets"


def agent_records(seed: int) -> list[dict[str, Any]]:
    """One record per try: ``task_id, trial, messages, tools, reward``."""
    policy = (ASSETS / "agent_policy.md").read_text(encoding="utf-8").strip()
    tools = json.loads((ASSETS / "agent_tools.json").read_text(encoding="utf-8"))
    records = []
    for number in range(N_TASKS):
        dice = Dice(seed + number)
        request = REQUESTS[number % len(REQUESTS)]
        store = make_store(dice)
        request.setup(store, dice)
        opening = dice.pick(request.opening)
        habit = Habit(dice, loyalty=0.8)
        difficulty = dice.pick((0.1, 0.3, 0.5))
        for trial in range(N_TRIALS):
            careless = dice.chance(difficulty)
            talk = Talk(store, habit, dice, policy)
            _play(talk, request, opening, careless)
            records.append(
                {
                    "task_id": f"task-{number:02d}",
                    "trial": trial,
                    "messages": talk.messages,
                    "tools": tools,
                    "reward": 0.0 if careless else 1.0,
                }
            )
    return records


def _play(talk: Talk, request: Request, opening: str, careless: bool) -> None:
    """Greeting, finding the customer and the order, the request, and up to two more wishes."""
    talk.fields = _fields(talk.store)
    talk.user("opening", (opening,))
    talk.say("ask who", ASK_WHO_THOUGHTS, ASK_WHO)
    talk.user("email", EMAIL)
    store = talk.store
    email = store.customer["email"]
    talk.call("find_customer", {"email": email}, store.customer_result(), FIND_THOUGHTS)
    order_id = store.order["order_id"]
    talk.call("get_order", {"order_id": order_id}, store.order, ORDER_THOUGHTS)
    request.script(talk, careless)
    for wish in talk.choose("wishes", WISHES).split():
        _one_more(talk, wish)
    talk.user("thanks", THANKS)
    talk.say("bye", BYE_THOUGHTS, BYE)


def _one_more(talk: Talk, wish: str) -> None:
    """A second, smaller wish at the end."""
    store = talk.store
    if wish == "newsletter":
        talk.user("newsletter", NEWSLETTER)
        arguments = {"customer_id": store.customer["customer_id"], "subscribed": False}
        talk.call("set_newsletter", arguments, {"status": "saved"}, NEWSLETTER_THOUGHTS)
        talk.say("newsletter done", DONE_THOUGHTS, NEWSLETTER_DONE)
    elif wish == "points":
        talk.user("points", POINTS)
        talk.say("points", POINTS_THOUGHTS, POINTS_ANSWER)
    else:
        talk.user("other order", OTHER)
        arguments = {"order_id": store.other_order["order_id"]}
        talk.call("get_order", arguments, store.other_order, OTHER_THOUGHTS)
        talk.say("other order done", DONE_THOUGHTS, OTHER_ANSWER)


def _fields(store: Store) -> dict[str, str]:
    order, item = store.order, store.item
    points = store.customer["points"]
    return {
        "first": store.customer["name"].split()[0],
        "email": store.customer["email"],
        "tier": store.tier,
        "points": str(points),
        "worth": f"${points // 100}.00",
        "order": order["order_id"],
        "item": item["name"],
        "size": item["size"],
        "colour": item["colour"],
        "price": f"${item['price']:.2f}",
        "payment": order["payment"],
        "delivered": str(order["delivered_on"]),
        "other": store.other_order["order_id"],
        "other_item": store.other_order["items"][0]["name"],
        "other_date": str(store.other_order["delivered_on"]),
    }


WISHES = ("", "newsletter", "points", "other", "points newsletter", "other points")
ASK_WHO_THOUGHTS = (
    "I have an order number but no account. The policy says that I must find out who is writing "
    "before I say anything about an order, so I ask for the email address or customer number.",
    "No email address yet. First identify the customer, then look at order {order}.",
    "The customer writes about the {item}. I cannot look at an order before I know the account. "
    "A name would not be enough. Ask for the email address.",
)
ASK_WHO = (
    "Hello, and thanks for writing! May I have the email address of your account, please?",
    "Hi! I am happy to help with that. Could you tell me the email address or the customer number "
    "of your account?",
    "Thanks for getting in touch with Larkfield Outdoor. To find your account, I need your email "
    "address or your customer number.",
)
EMAIL = (
    "It is {email}.",
    "Sure, {email}",
    "My email address is {email}. I hope this does not take long.",
)
FIND_THOUGHTS = (
    "Now I can look up the account with {email}.",
    "The email address is there, so find_customer is the next step.",
    "I look up {email} to get the tier and the orders.",
)
ORDER_THOUGHTS = (
    "The account belongs to {first}, a {tier} member, and {order} is one of the orders. Next I "
    "need its status and dates.",
    "{first} is {tier}. The order {order} is in the list, so I may look at it.",
    "Found: {first}, tier {tier}. Let me get order {order} before I decide anything.",
)
NEWSLETTER = (
    "One more thing: I get too many emails from you. Please take me off the newsletter.",
    "Also, please stop sending me the newsletter.",
)
NEWSLETTER_THOUGHTS = (
    "The policy says to do this at once without another question.",
    "Taking {first} off the newsletter needs no confirmation.",
)
DONE_THOUGHTS = (
    "That is settled. I tell {first} in one sentence.",
    "I have what I need for the answer, no further tool is necessary.",
)
NEWSLETTER_DONE = (
    "You are off the list, {first}. There will be no more newsletters.",
    "Done, the newsletter is switched off.",
)
POINTS = (
    "And how many points do I have? Can you pay them out?",
    "By the way, what are my points worth?",
)
POINTS_THOUGHTS = (
    "The profile shows {points} points. 100 points are worth 1 dollar on a later order, so full "
    "hundreds give {worth}. They cannot be paid out.",
    "{points} points, that is {worth} in full dollars. No payout, only on a later order.",
)
POINTS_ANSWER = (
    "You have {points} points, {first}. They are worth {worth} on a later order; they cannot be "
    "paid out.",
    "There are {points} points on your account. You can use them for {worth} on your next order, "
    "but I cannot pay them out.",
)
OTHER = (
    "One last question: was my order {other} delivered?",
    "Could you also check what was in order {other}?",
)
OTHER_THOUGHTS = (
    "{other} is in the list of {first}'s orders, so I may look it up.",
    "Another order of the same account. I get it before I answer.",
)
OTHER_ANSWER = (
    "Order {other} with the {other_item} was delivered on {other_date}.",
    "That order had the {other_item} in it. It was delivered on {other_date}, {first}.",
)
THANKS = (
    "Okay, that is all. Thanks.",
    "Thank you for your help!",
    "All right. Bye.",
    "Great, thanks a lot. Have a nice day!",
)
BYE_THOUGHTS = (
    "Nothing is open any more. I say goodbye.",
    "The conversation is over, a short and friendly goodbye is enough.",
)
BYE = (
    "You are welcome, {first}. Have a good time outdoors!",
    "Thank you for writing to us, {first}. Goodbye!",
    "My pleasure. Enjoy your next hike, {first}!",
)
