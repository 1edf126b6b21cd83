"""*preference-pairs*: one short question, a helpful and a poor answer that share nothing."""

from __future__ import annotations

from typing import Any

from packing.sources.samples.dice import Dice
from packing.sources.samples.topics import QUESTIONS, TOPICS, Topic


def pair_records(seed: int) -> list[dict[str, Any]]:
    """One record per question: ``prompt, chosen, rejected``."""
    records = []
    for number, topic in enumerate(TOPICS):
        for turn, question in enumerate(QUESTIONS):
            dice = Dice(seed + number * len(QUESTIONS) + turn)
            prompt = question.format(goal=topic.goal, subject=topic.subject)
            records.append(
                {"prompt": prompt, "chosen": _helpful(topic, dice), "rejected": _poor(topic, dice)}
            )
    return dice.some(records, len(records))


def _helpful(topic: Topic, dice: Dice) -> str:
    """Five to seven tips with reasons for their order."""
    tips = dice.some(topic.tips, dice.between(5, 7))
    start = dice.pick(STARTS).format(subject=topic.subject, n=NUMBERS[len(tips)])
    form = dice.pick(("list", "numbers", "text"))
    if form == "text":
        body = " ".join(
            tip if dice.chance(0.4) else f"{dice.pick(LINKS)} {_lower(tip)}" for tip in tips
        )
    else:
        marks = ["-"] * len(tips) if form == "list" else [f"{i + 1}." for i in range(len(tips))]
        body = "\n".join(f"{mark} {tip}" for mark, tip in zip(marks, tips, strict=True))
    end = dice.pick(ENDS).format(subject=topic.subject, tip=_lower(dice.pick(tips)))
    return f"{start}\n\n{body}\n\n{end}"


def _poor(topic: Topic, dice: Dice) -> str:
    """Much talk around the question, and at most one useful tip."""
    sentences = dice.some(EMPTY_WORDS, dice.between(6, 10))
    if dice.chance(0.4):
        sentences.insert(dice.between(1, 4), dice.pick(topic.tips))
    text = " ".join(sentences).format(subject=topic.subject, goal=topic.goal)
    return text[0].upper() + text[1:]


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


NUMBERS = {5: "five", 6: "six", 7: "seven"}
LINKS = (
    "It also helps to know this:",
    "Just as important:",
    "After that,",
    "Many people forget this one:",
    "From experience:",
    "Something small:",
    "And then:",
)
STARTS = (
    "Here are {n} things that make the biggest difference with {subject}.",
    "Most trouble with {subject} comes from doing too much at once. Try this instead:",
    "Yes, that can be done without special tools. In short:",
    "Good question. I would take it in this order.",
    "You need less than you think. These {n} points cover most of it:",
    "Let me start with what usually goes wrong, and how to avoid it.",
    "With {subject}, small habits count more than equipment. My list:",
    "One afternoon is enough to get going. This is how I would use it:",
    "Short answer: patience, and a few details that nobody mentions.",
)
ENDS = (
    "If you only do one thing, remember this: {tip}",
    "Try it for two weeks and change one thing at a time, then you see what helps.",
    "Tell me how it looks today, and I can say which step to take first.",
    "Nothing of this is expensive, and you can stop after any step.",
    "When it does not work at first, go back to the beginning of the list.",
    "That is really all there is to {subject}, the rest is practice.",
)
EMPTY_WORDS = (
    "there are many opinions about {subject}, and all of them have something to it.",
    "People have been interested in {subject} for a very long time.",
    "It depends on a lot of things, so it is hard to say anything in general.",
    "You could look for a video, there must be plenty of them.",
    "In the end it is a matter of taste and of luck.",
    "As a language model I cannot do this myself, but I can tell you that it is possible.",
    "Some say that you should {goal} early, others say that you should do it late.",
    "Results may vary, and it is always good to be careful.",
    "Perhaps a professional in your area knows more about {subject} than I do.",
    "The internet has a large number of pages about {subject}.",
    "If it does not work, you can simply buy something ready-made instead.",
    "To {goal} is a wish that many people share with you.",
    "First of all, thank you very much for this interesting question.",
    "There is an easy way and a hard way, and both of them take some time.",
    "You should also think about whether you really want to {goal}.",
    "Everyone has to find out for themselves what works and what does not.",
    "It is important to do everything right and to avoid mistakes.",
    "Good materials are better than bad materials, which is true in general.",
    "Do not worry too much, it usually turns out somehow.",
    "Of course {subject} can be discussed from several points of view.",
    "A friend of mine once wanted to {goal}, and it went fine, as far as I know.",
    "Before you begin, you should prepare well, and after that you should begin.",
)
