"""A conversation in the making: messages in OpenAI's style, with tool calls and reasoning."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from packing.sources.samples.dice import Dice, Habit
from packing.sources.samples.store import Store


class Talk:
    """Appends turns whose wording is a habit of the task; ``fields`` fill the gaps in texts."""

    def __init__(self, store: Store, habit: Habit, dice: Dice, system: str) -> None:
        self.store = store
        self.dice = dice
        self.fields: dict[str, str] = {}
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
        self._habit = habit
        self._calls = 0

    def choose(self, question: str, choices: Sequence[str]) -> str:
        return self._habit.choose(self.dice, question, choices)

    def user(self, question: str, choices: Sequence[str]) -> None:
        """A message of the customer."""
        self._add("user", content=self._text(question, choices))

    def say(self, question: str, thoughts: Sequence[str], texts: Sequence[str]) -> None:
        """An answer to the customer, after thinking."""
        self._add(
            "assistant",
            content=self._text(question, texts),
            reasoning_content=self._thought(question, thoughts),
        )

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        result: str | Mapping[str, Any],
        thoughts: Sequence[str],
    ) -> None:
        """A tool call after thinking, and what the tool answers."""
        self._calls += 1
        call_id = f"call_{self._calls:02d}"
        function = {"name": tool, "arguments": json.dumps(arguments)}
        self._add(
            "assistant",
            content="",
            reasoning_content=self._thought(f"call {tool}", thoughts),
            tool_calls=[{"id": call_id, "type": "function", "function": function}],
        )
        content = result if isinstance(result, str) else json.dumps(result)
        self._add("tool", content=content, tool_call_id=call_id, name=tool)

    def confirm(self) -> None:
        """The customer says yes."""
        self.user("confirm", YES)

    def look_up_product(self) -> None:
        """The agent gets price and stock of the item."""
        self.call(
            "get_product",
            {"product_id": self.store.item["product_id"]},
            self.store.product,
            PRODUCT_THOUGHTS,
        )

    def transfer(self) -> None:
        """The agent gives up and hands over to a person."""
        summary = self._text("handover", HANDOVER)
        arguments, result = {"summary": summary}, {"status": "transferred"}
        self.call("transfer_to_human", arguments, result, HANDOVER_THOUGHTS)
        self.say("handed over", HANDED_OVER_THOUGHTS, HANDED_OVER)

    def _add(self, role: str, **fields: Any) -> None:
        self.messages.append({"role": role, **fields})

    def _text(self, question: str, choices: Sequence[str]) -> str:
        return self.choose(question, choices).format(**self.fields)

    def _thought(self, question: str, thoughts: Sequence[str]) -> str:
        thought = self._text(f"{question}: thought", thoughts)
        if self.dice.chance(0.3):
            thought += "\n" + self._text(f"{question}: care", CARE)
        return thought


CARE = (
    "Let me go through the policy again. One tool call at a time, and no message in the same "
    "turn. Before I change anything I need a clear yes with the amount. This is consistent with "
    "what I am about to do.",
    "I should not guess here. Prices, stock and dates have to come from the tools, and amounts "
    "need two decimals. I use the first name, {first}, and keep it short.",
    "{first} is a {tier} member, which matters for the number of days, for the label and for "
    "vouchers. I have to keep the tiers apart: basic, plus and summit have different rules.",
    "What do I know so far? The customer is {first}, the order is {order}, and the item is the "
    "{item}. What is still open? I have to tell {first} exactly what happens next and wait if it "
    "changes the order.",
    "Could this be a case for a human colleague? The policy says only if the request is not "
    "covered or cannot be solved with the tools. Both do not hold here, so I go on myself.",
)

YES = ("Yes, please.", "Yes, go ahead.", "Sounds good, please do that.", "Yes. Thank you!",
       "Okay, yes, that works for me.")  # fmt: skip
REFUND_PLEASE = (
    "Yes, it is unused and the labels are on. Please refund it to my card.",
    "Never worn, labels still there. I want the money back on the card, please.",
    "It is unused. The normal refund is fine.",
)
DONE = (
    "The tool answered without an error. I tell {first} what happened and what comes next.",
    "That worked. A short summary with the amount or the date, then ask if anything is left.",
    "Done. Now a friendly message to {first} without another tool call.",
)
PRODUCT_THOUGHTS = (
    "Next I need the current price and the stock of the {item}.",
    "Stock and price must come from the tools, so I look up the product first.",
)
HANDOVER = (
    "{first} asks about order {order} and the {item}; no change was made.",
    "Request about the {item} in order {order} by {first}, not solved yet.",
)
HANDOVER_THOUGHTS = (
    "This looks complicated. I hand {first} over to a colleague with a short summary.",
    "I would rather let a person decide, so I write a summary and transfer {first}.",
)
HANDED_OVER_THOUGHTS = ("The transfer is done, I only have to tell {first}.",)
HANDED_OVER = (
    "I have passed this on to a colleague, {first}. They will write to you within a day.",
    "A colleague will take over from here and answer you by email within a day, {first}.",
)
