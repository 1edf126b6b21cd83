"""The kinds of word problems in *math-grpo*: a text with gaps, ranges for them, solving steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Operand = str | int


@dataclass(frozen=True)
class Step:
    """``name = left op right``; operands are givens, earlier steps or whole numbers."""

    name: str
    left: Operand
    op: str
    right: Operand
    what: str
    unit: str


@dataclass(frozen=True)
class Family:
    """A kind of problem: ``texts`` (wordings), ``givens`` (ranges), ``facts`` and ``steps``."""

    texts: tuple[str, ...]
    givens: Mapping[str, tuple[int, int]]
    facts: tuple[str, ...]
    steps: tuple[Step, ...]


NAMES = (
    "Amara", "Bo", "Carmen", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Keiko",
    "Lamar", "Mina", "Nadia", "Otto", "Priya", "Quinn", "Rosa", "Samir", "Tess", "Umar", "Vera",
    "Wen", "Ximena", "Yusuf", "Zoe",
)  # fmt: skip
PLACES = (
    "Harbour Street", "the old mill", "Maple Lane", "the north valley", "Station Road",
    "Lindenfeld", "the riverside", "Castle Hill", "Port Almond", "the high school",
)  # fmt: skip

FAMILIES = (
    Family(
        (
            "{name} keeps hens near {place}. They lay {a} eggs every day. The family eats {b} of "
            "them for breakfast and {c} go into a cake for {friend}. The rest are sold at the "
            "market for ${d} each. How many dollars does {name} earn in {w} days?",
            "Every day {name}'s hens lay {a} eggs. {b} are eaten at breakfast, {c} are given to "
            "{friend} for baking, and all others are sold for ${d} apiece. What are the earnings, "
            "in dollars, after {w} days?",
        ),
        {"a": (18, 48), "b": (2, 7), "c": (2, 8), "d": (2, 4), "w": (3, 14)},
        ("the hens lay {a} eggs a day", "{b} eggs are eaten at breakfast", "{c} eggs are used for "
         "baking", "an egg sells for ${d}", "we count {w} days"),
        (
            Step("kept", "b", "+", "c", "the eggs that are not sold each day", "eggs"),
            Step("sold", "a", "-", "kept", "the eggs sold each day", "eggs"),
            Step("daily", "sold", "*", "d", "the money earned each day", "dollars"),
            Step("total", "daily", "*", "w", "the money earned in {w} days", "dollars"),
        ),
    ),
    Family(
        (
            "The theatre at {place} sold {a} adult tickets at ${b} each and {c} child tickets at "
            "${d} each. Renting the costumes cost ${e}. How much money, in dollars, was left after "
            "paying for the costumes?",
            "{name} runs the ticket desk for a play at {place}. Adults pay ${b} and children pay "
            "${d}. In the end {a} adults and {c} children came, and the costumes cost ${e}. How "
            "many dollars are left once the costumes are paid?",
        ),
        {"a": (35, 120), "b": (9, 18), "c": (20, 90), "d": (4, 8), "e": (80, 320)},
        ("{a} adults came", "an adult ticket costs ${b}", "{c} children came", "a child ticket "
         "costs ${d}", "the costumes cost ${e}"),
        (
            Step("adults", "a", "*", "b", "the money from adult tickets", "dollars"),
            Step("children", "c", "*", "d", "the money from child tickets", "dollars"),
            Step("sales", "adults", "+", "children", "the money from all tickets", "dollars"),
            Step("left", "sales", "-", "e", "the money left after the costumes", "dollars"),
        ),
    ),
    Family(
        (
            "{name} is reading a book of {a} pages. For the first {b} days {name} reads {c} pages "
            "a day. How many pages a day must {name} read to finish in the {d} days that are left?",
            "A book has {a} pages. After {b} days at {c} pages a day, {name} wants to finish the "
            "rest in {d} days, the same number of pages each day. How many pages a day is that?",
        ),
        {"a": (180, 620), "b": (3, 9), "c": (12, 35), "d": (4, 12)},
        ("the book has {a} pages", "{name} has read for {b} days", "{c} pages were read on each of "
         "them", "{d} days are left"),
        (
            Step("read", "b", "*", "c", "the pages read so far", "pages"),
            Step("left", "a", "-", "read", "the pages still to read", "pages"),
            Step("pace", "left", "/", "d", "the pages to read on each day left", "pages a day"),
        ),
    ),
    Family(
        (
            "{name} drives from {place} to the coast. The first {a} hours are on small roads at "
            "{b} km per hour, then {c} hours on the motorway at {d} km per hour. The car needs one "
            "litre of fuel for every {e} km. How many litres does the trip take?",
            "A van leaves {place}. It goes {b} km per hour for {a} hours and {d} km per hour for "
            "another {c} hours. It drives {e} km on a litre. How many litres of fuel are used?",
        ),
        {"a": (2, 5), "b": (40, 65), "c": (2, 6), "d": (90, 120), "e": (10, 18)},
        ("the first part takes {a} hours", "its speed is {b} km per hour", "the second part takes "
         "{c} hours", "its speed is {d} km per hour", "one litre lasts {e} km"),
        (
            Step("slow", "a", "*", "b", "the distance on small roads", "km"),
            Step("fast", "c", "*", "d", "the distance on the motorway", "km"),
            Step("way", "slow", "+", "fast", "the whole distance", "km"),
            Step("fuel", "way", "/", "e", "the fuel for the whole trip", "litres"),
        ),
    ),
    Family(
        (
            "{name} buys {a} boxes of pencils with {b} pencils in each. {c} pencils are broken and "
            "thrown away. The rest are shared equally among {d} classes at {place}. How many "
            "pencils does each class get?",
            "There are {a} boxes with {b} pencils each. After throwing away {c} broken ones, "
            "{name} and {friend} divide the pencils equally among {d} classes. How many pencils "
            "go to one class?",
        ),
        {"a": (6, 24), "b": (12, 40), "c": (4, 30), "d": (3, 12)},
        ("there are {a} boxes", "each box holds {b} pencils", "{c} pencils are broken", "there are "
         "{d} classes"),
        (
            Step("all", "a", "*", "b", "the pencils in all boxes", "pencils"),
            Step("good", "all", "-", "c", "the pencils that are not broken", "pencils"),
            Step("share", "good", "/", "d", "the pencils for each class", "pencils"),
        ),
    ),
    Family(
        (
            "{name} is saving for a bicycle that costs ${a}. {name} already has ${b} and gets "
            "${c} a week for walking {friend}'s dog, but spends ${d} of it every week. In how "
            "many weeks will {name} have enough?",
            "A bicycle costs ${a}. {name} starts with ${b}, earns ${c} each week and spends ${d} "
            "each week. After how many weeks can {name} buy the bicycle?",
        ),
        {"a": (180, 460), "b": (20, 90), "c": (14, 40), "d": (3, 12)},
        ("the bicycle costs ${a}", "{name} already has ${b}", "${c} come in every week", "${d} are "
         "spent every week"),
        (
            Step("need", "a", "-", "b", "the money that is still missing", "dollars"),
            Step("weekly", "c", "-", "d", "the money kept each week", "dollars"),
            Step("weeks", "need", "/", "weekly", "the number of weeks", "weeks"),
        ),
    ),
    Family(
        (
            "A bakery at {place} uses {a} cups of flour for one loaf. On Friday it bakes {b} "
            "loaves and on Saturday {c} more loaves than on Friday. A sack holds {d} cups. How "
            "many sacks of flour are used on both days?",
            "One loaf takes {a} cups of flour. {name} bakes {b} loaves on Friday and, on Saturday, "
            "{c} loaves more than that. Flour comes in sacks of {d} cups. How many sacks are used "
            "on the two days together?",
        ),
        {"a": (3, 6), "b": (24, 72), "c": (6, 36), "d": (20, 60)},
        ("one loaf takes {a} cups", "{b} loaves are baked on Friday", "Saturday has {c} loaves "
         "more", "a sack holds {d} cups"),
        (
            Step("saturday", "b", "+", "c", "the loaves baked on Saturday", "loaves"),
            Step("loaves", "b", "+", "saturday", "the loaves of both days", "loaves"),
            Step("cups", "loaves", "*", "a", "the flour for all loaves", "cups"),
            Step("sacks", "cups", "/", "d", "the number of sacks", "sacks"),
        ),
    ),
    Family(
        (
            "{name} plants {a} rows of lettuce with {b} plants in a row. Rabbits eat {c} plants. "
            "{name} packs the others in crates of {d} and sells a crate for ${e}. How many dollars "
            "does {name} get?",
            "In a field near {place} there are {a} rows of {b} lettuce plants. {c} are lost to "
            "rabbits, the rest go into crates of {d}. {friend} buys all crates for ${e} each. How "
            "much does {friend} pay, in dollars?",
        ),
        {"a": (8, 24), "b": (10, 30), "c": (6, 40), "d": (6, 15), "e": (7, 16)},
        ("there are {a} rows", "a row has {b} plants", "rabbits eat {c} plants", "a crate holds "
         "{d} plants", "a crate sells for ${e}"),
        (
            Step("planted", "a", "*", "b", "the plants before the rabbits came", "plants"),
            Step("left", "planted", "-", "c", "the plants that are left", "plants"),
            Step("crates", "left", "/", "d", "the number of crates", "crates"),
            Step("money", "crates", "*", "e", "the money for all crates", "dollars"),
        ),
    ),
    Family(
        (
            "{name} earns ${a} an hour. For every hour over {b} hours in a week the pay is ${c} "
            "more per hour. Last week {name} worked {d} hours more than {b}. How many dollars did "
            "{name} earn last week?",
            "At the workshop on {place} an hour pays ${a}, and each hour beyond {b} in one week "
            "pays ${c} more than that. {name} worked all {b} hours and {d} extra hours. What was "
            "{name}'s pay for the week, in dollars?",
        ),
        {"a": (12, 28), "b": (30, 40), "c": (3, 9), "d": (2, 12)},
        ("a normal hour pays ${a}", "there are {b} normal hours", "an extra hour pays ${c} more",
         "{d} extra hours were worked"),
        (
            Step("normal", "a", "*", "b", "the pay for the normal hours", "dollars"),
            Step("rate", "a", "+", "c", "the pay for one extra hour", "dollars"),
            Step("extra", "rate", "*", "d", "the pay for the extra hours", "dollars"),
            Step("pay", "normal", "+", "extra", "the pay for the week", "dollars"),
        ),
    ),
    Family(
        (
            "A coat at the shop on {place} costs ${a}. In the sale it is {b} percent cheaper. "
            "{name} also buys {c} pairs of socks at ${d} a pair, at full price. How many dollars "
            "does {name} pay in total?",
            "{name} buys a coat marked ${a} with a discount of {b} percent, and {c} pairs of socks "
            "for ${d} each without any discount. What is the total, in dollars?",
        ),
        {"a": (60, 240), "b": (10, 45), "c": (2, 6), "d": (3, 9)},
        ("the coat is marked ${a}", "the discount is {b} percent", "{name} buys {c} pairs of socks",
         "a pair costs ${d}"),
        (
            Step("scaled", "a", "*", "b", "the price times the percentage", "hundredths"),
            Step("off", "scaled", "/", 100, "the discount on the coat", "dollars"),
            Step("coat", "a", "-", "off", "the price of the coat in the sale", "dollars"),
            Step("socks", "c", "*", "d", "the price of the socks", "dollars"),
            Step("total", "coat", "+", "socks", "the total to pay", "dollars"),
        ),
    ),
    Family(
        (
            "A tank at {place} holds {a} litres and already has {b} litres in it. A pump adds {c} "
            "litres a minute, but {d} litres a minute leak out. After how many minutes is the tank "
            "full?",
            "{name} fills a tank of {a} litres that starts with {b} litres. Every minute {c} "
            "litres flow in and {d} litres leak out. How many minutes pass until it is full?",
        ),
        {"a": (400, 1500), "b": (20, 180), "c": (14, 45), "d": (2, 9)},
        ("the tank holds {a} litres", "{b} litres are in it already", "{c} litres flow in each "
         "minute", "{d} litres leak out each minute"),
        (
            Step("room", "a", "-", "b", "the litres that still fit", "litres"),
            Step("net", "c", "-", "d", "the litres gained each minute", "litres a minute"),
            Step("time", "room", "/", "net", "the minutes until the tank is full", "minutes"),
        ),
    ),
    Family(
        (
            "{name} puts a fence around a rectangular field that is {a} metres long and {b} metres "
            "wide, leaving a gate of {c} metres open. A metre of fence costs ${d}. What does the "
            "fence cost, in dollars?",
            "A field at {place} measures {a} metres by {b} metres. All sides get a fence except a "
            "gate of {c} metres. At ${d} a metre, how many dollars must {name} pay?",
        ),
        {"a": (25, 90), "b": (15, 60), "c": (2, 6), "d": (4, 15)},
        ("the field is {a} metres long", "it is {b} metres wide", "the gate is {c} metres", "a "
         "metre of fence costs ${d}"),
        (
            Step("half", "a", "+", "b", "the length and the width together", "metres"),
            Step("around", "half", "*", 2, "the whole way around", "metres"),
            Step("fence", "around", "-", "c", "the fence without the gate", "metres"),
            Step("cost", "fence", "*", "d", "the cost of the fence", "dollars"),
        ),
    ),
    Family(
        (
            "A bus leaves {place} with {a} passengers. At the first stop {b} get off and {c} get "
            "on. At the second stop, {d} times as many as got on at the first stop get on. Each "
            "seat row holds {e} people. How many rows are filled?",
            "There are {a} people on the bus when it leaves {place}. First {b} leave and {c} come "
            "in; later {d} times that many ({c}) come in. A row seats {e}. How many rows do all "
            "passengers fill?",
        ),
        {"a": (18, 40), "b": (3, 12), "c": (2, 9), "d": (2, 4), "e": (2, 5)},
        ("{a} people start on the bus", "{b} get off first", "{c} get on at the first stop", "{d} "
         "times as many get on later", "a row holds {e} people"),
        (
            Step("stay", "a", "-", "b", "the passengers who stay", "people"),
            Step("first", "stay", "+", "c", "the passengers after the first stop", "people"),
            Step("later", "c", "*", "d", "the people who get on later", "people"),
            Step("all", "first", "+", "later", "all passengers in the end", "people"),
            Step("rows", "all", "/", "e", "the number of rows", "rows"),
        ),
    ),
    Family(
        (
            "A print shop has {a} machines. Each prints {b} pages a minute. An order from {place} "
            "needs {c} booklets of {d} pages. How many minutes do all machines together take?",
            "{name} must print {c} booklets with {d} pages each on {a} machines that print {b} "
            "pages a minute each. How many minutes does it take?",
        ),
        {"a": (2, 6), "b": (10, 30), "c": (30, 120), "d": (12, 48)},
        ("there are {a} machines", "a machine prints {b} pages a minute", "{c} booklets are "
         "needed", "a booklet has {d} pages"),
        (
            Step("speed", "a", "*", "b", "the pages printed in one minute", "pages"),
            Step("pages", "c", "*", "d", "the pages of the whole order", "pages"),
            Step("time", "pages", "/", "speed", "the minutes for the order", "minutes"),
        ),
    ),
    Family(
        (
            "{name} is {a} years old. {friend} is {b} times as old, and {friend}'s uncle is {c} "
            "years older than {friend}. What will the ages of all three add up to in {d} years?",
            "{friend} is {b} times as old as {name}, who is {a}. {friend}'s uncle is {c} years "
            "older than {friend}. How old will the three be together in {d} years?",
        ),
        {"a": (6, 14), "b": (2, 4), "c": (12, 28), "d": (2, 9)},
        ("{name} is {a}", "{friend} is {b} times as old", "the uncle is {c} years older than "
         "{friend}", "we look {d} years ahead"),
        (
            Step("older", "a", "*", "b", "{friend}'s age", "years"),
            Step("uncle", "older", "+", "c", "the uncle's age", "years"),
            Step("pair", "a", "+", "older", "the ages of {name} and {friend} together", "years"),
            Step("now", "pair", "+", "uncle", "all three ages today", "years"),
            Step("gain", 3, "*", "d", "the years that three people gain", "years"),
            Step("then", "now", "+", "gain", "all three ages in {d} years", "years"),
        ),
    ),
    Family(
        (
            "For a walk from {place}, {name} buys {a} bottles of juice at ${b} and {c} sandwiches "
            "at ${d}. {name} pays with {e} ten-dollar notes. How many dollars come back?",
            "{a} bottles of juice cost ${b} each and {c} sandwiches cost ${d} each. {name} hands "
            "over {e} notes of ten dollars. How much change, in dollars, does {name} get?",
        ),
        {"a": (4, 12), "b": (2, 4), "c": (5, 14), "d": (4, 7), "e": (7, 14)},
        ("{a} bottles are bought", "a bottle costs ${b}", "{c} sandwiches are bought", "a sandwich "
         "costs ${d}", "{name} pays with {e} ten-dollar notes"),
        (
            Step("juice", "a", "*", "b", "the price of the juice", "dollars"),
            Step("bread", "c", "*", "d", "the price of the sandwiches", "dollars"),
            Step("cost", "juice", "+", "bread", "the price of everything", "dollars"),
            Step("paid", "e", "*", 10, "the money handed over", "dollars"),
            Step("change", "paid", "-", "cost", "the change", "dollars"),
        ),
    ),
)  # fmt: skip
