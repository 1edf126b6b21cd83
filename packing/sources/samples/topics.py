"""What *preference-pairs* talks about: everyday topics, questions on them, and useful tips."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """``goal`` completes "How can I …?", ``subject`` is a noun, ``tips`` are full sentences."""

    goal: str
    subject: str
    tips: tuple[str, ...]


QUESTIONS = (
    "How can I {goal}?",
    "What is the best way to {goal}?",
    "I am a beginner. How do I {goal}?",
    "Could you give me a few tips on {subject}?",
    "I tried to {goal} twice and it went wrong. What am I missing?",
    "Explain {subject} to me as if I had one free afternoon.",
    "What should I know about {subject} before I start?",
    "My neighbour says it is easy to {goal}. Is that true?",
)

TOPICS = (
    Topic("keep basil alive in the kitchen", "basil in pots", (
        "Shop pots hold a dozen seedlings, so split them into three pots with fresh soil.",
        "Water from below and let the top of the soil dry before you water again.",
        "Cut whole stems just above a pair of leaves, and two new stems grow from there.",
        "A south window is right in winter, but in July it needs some shade at noon.",
        "Remove the flowers early, because the leaves turn bitter once it blooms.",
        "Cold drafts below ten degrees turn the leaves black within a night.",
        "A little liquid fertiliser every second week is enough for a small pot.",
        "Root a cut stem in a glass of water, it takes about eight days.",
    )),
    Topic("bake a sourdough loaf", "sourdough bread", (
        "Feed the starter in the evening and use it when it has doubled, not later.",
        "Weigh everything: seventy grams of water for a hundred grams of flour is a mild start.",
        "Mix flour and water first and wait half an hour before the salt goes in.",
        "Fold the dough every thirty minutes for two hours instead of kneading it.",
        "The dough is ready when it jiggles and a wet finger leaves a slow dent.",
        "Shape it tightly, then leave it in the fridge overnight for taste.",
        "Bake in a closed pot at two hundred and forty degrees and open it after twenty minutes.",
        "Wait an hour before you cut it, the crumb is still setting.",
    )),
    Topic("repair a flat bicycle tyre", "flat bicycle tyres", (
        "Turn the bicycle over and shift to the smallest sprocket before the wheel comes out.",
        "Start with the tyre levers opposite the valve, where there is most room.",
        "Pump up the tube and hold it near your lips to feel where the air comes out.",
        "Roughen the rubber around the hole, or the patch will not stick.",
        "Glue needs five minutes to dry until it looks dull, only then press the patch on.",
        "Run a cloth around the inside of the tyre, the thorn is often still there.",
        "Push the last part of the tyre over the rim by hand, since levers pinch the tube.",
        "Check the printed pressure range and stay in its upper half in town.",
    )),
    Topic("learn twenty words a day", "learning vocabulary", (
        "Write each word in a sentence about your own life, not in a list of pairs.",
        "Review after one day, three days and a week, and drop what you know by then.",
        "Say the word aloud, because reading alone trains only your eyes.",
        "Ten minutes in the morning and ten at night beat one long hour on Sunday.",
        "Group words by scene, such as a station or a kitchen, instead of by alphabet.",
        "Cover the meaning and guess before you look, even if you expect to be wrong.",
        "Mark the words that you mix up and put the two next to each other.",
        "Read one short text a day in which half of the new words appear.",
    )),
    Topic("sleep better in summer", "sleeping on hot nights", (
        "Close windows and blinds by nine in the morning and air the rooms after sunset.",
        "A lukewarm shower cools you longer than a cold one.",
        "Put the fan near the window so that it draws the night air in.",
        "Linen and thin cotton let more moisture out than a synthetic sheet.",
        "Eat lightly in the evening, because digestion keeps the body warm.",
        "Wet a towel, wring it out and hang it in front of the open window.",
        "Keep to your usual hour, even when a late night seems more pleasant.",
        "A cool bottle at your feet lowers the temperature more than one on your neck.",
    )),
    Topic("prepare for a job interview", "job interviews", (
        "Write down five short stories about your work, each with a result in numbers.",
        "Read the advertisement again and mark every verb, since those are the questions.",
        "Practise the first two minutes aloud until they sound like talking.",
        "Look up who will be in the room and what they work on.",
        "Prepare an honest answer to what went wrong last year and what you changed.",
        "Bring three questions that cannot be answered by the website.",
        "Travel the way once before, or test the camera and the sound the day before.",
        "Send a short thank-you note with one thing you learned in the talk.",
    )),
    Topic("paint a room without streaks", "painting walls", (
        "Wash greasy spots with soda, since paint does not hold on them.",
        "Cut in the edges of one wall only, then roll it while the edge is wet.",
        "Load the roller well and do not press, pressing is what leaves the tracks.",
        "Work from the window into the room so that the light falls along your lanes.",
        "Mix all buckets of one colour in a large tub to even out the shade.",
        "Pull the tape off while the paint is still a little soft.",
        "Two thin coats with a night between them cover better than a thick one.",
        "Close doors and windows for the first hour, a draft dries the edges too fast.",
    )),
    Topic("take sharp photos of birds", "bird photography", (
        "A short exposure, a thousandth of a second or less, freezes the wings.",
        "Focus on the eye, a sharp eye makes the whole picture look sharp.",
        "Stay low, so that the background is far away and turns soft.",
        "Find a perch that they return to and wait there instead of following them.",
        "The hour after sunrise has soft light and hungry birds.",
        "Take series of five pictures and keep the best one of each.",
        "Wear dull colours and sit still for twenty minutes before the first picture.",
        "Lean the lens on a beanbag or a fence post when you have no tripod.",
    )),
    Topic("save money on groceries", "a smaller grocery bill", (
        "Plan four dinners, not seven, and leave room for what is left over.",
        "Compare the price per kilo on the small print of the label.",
        "Buy vegetables of the season, in August tomatoes cost half as much.",
        "Cook a pot of beans on Sunday, it is the cheapest protein there is.",
        "Keep a shelf in the fridge for things that must be eaten first.",
        "Freeze bread in slices and toast it straight from the freezer.",
        "Eat before you shop, and walk along the outer aisles first.",
        "Write down what you throw away for two weeks, then stop buying it.",
    )),
    Topic("start running again after a break", "running after a long break", (
        "Walk two minutes and run one, ten times, and stop while it still feels easy.",
        "You should be able to speak in full sentences for the whole run.",
        "Three runs a week with a day between them let the tendons catch up.",
        "Add ten minutes a week at most, whatever the watch suggests.",
        "Look at the heels of your shoes: if they lean to one side, it is time for new ones.",
        "Do calf raises on a stair every day, they prevent most early injuries.",
        "Choose a soft path for the first month, asphalt can wait.",
        "Put the clothes beside the bed, so that you are out before you think about it.",
    )),
    Topic("write a clear email", "writing clear emails", (
        "Put the request into the first sentence and the reasons after it.",
        "One subject for each email makes it possible to answer and to find it later.",
        "Name the day and the hour instead of writing soon.",
        "Number your questions, people answer numbers more often than paragraphs.",
        "Read it once on your phone, where long sentences look as long as they are.",
        "Write who should do what, since a question to everybody is a question to nobody.",
        "Leave out the sentence that explains why you are writing, the subject line did.",
        "Wait ten minutes before you send an angry one, and then cut it by half.",
    )),
    Topic("grow tomatoes on a balcony", "balcony tomatoes", (
        "Take a bush variety and a pot of at least fifteen litres for each plant.",
        "Set the plant deep, up to the first leaves, since the stem makes roots.",
        "Water in the morning at the foot, wet leaves bring disease.",
        "Shake the flowers gently at noon if no bees come up to your floor.",
        "Pinch out the side shoots of tall kinds once a week.",
        "From the first fruit on, give a tomato fertiliser every ten days.",
        "A roof against the rain is worth more than any spray.",
        "Pick them when the colour is full and leave them on the table, never in the fridge.",
    )),
    Topic("plan a hike with small children", "hiking with children", (
        "Count one hour for every two kilometres and double it if there is water on the way.",
        "Let the youngest walk in front and set the pace.",
        "Pack one more snack than you believe is possible.",
        "Choose a goal that can be seen or touched: a bridge, a cave, a hut with cake.",
        "Turn around at half of the time, not at half of the way.",
        "Dry socks in a bag save more afternoons than any toy.",
        "Tell the story in pieces, one at every signpost.",
        "Take the rope along, a metre of it turns a dull road into a train.",
    )),
    Topic("sharpen a kitchen knife", "sharpening knives", (
        "Soak the stone for ten minutes and lay it on a wet towel.",
        "Hold the blade at fifteen degrees, that is two coins under the back.",
        "Pull along the whole stone in one arc, from the heel to the tip.",
        "Stay on one side until you feel a burr along the whole edge.",
        "Then count the same number of strokes on the other side.",
        "Finish with light strokes on the fine side to take the burr off.",
        "A sheet of paper tells the truth: it should be cut without a saw.",
        "Wash by hand and keep it off glass boards, they ruin an edge in a week.",
    )),
    Topic("set up a small home network", "a home network", (
        "Place the router high and in the middle, not behind the television.",
        "Change the password of the router itself, not only that of the wireless network.",
        "Use a cable for everything that does not move, it frees the air for the rest.",
        "Put cameras and lamps into the guest network, they rarely get updates.",
        "Write down the addresses of printers and give them fixed ones.",
        "Test the speed by cable first, so you know what the line can do.",
        "Choose a channel that your neighbours do not use, an app shows them.",
        "Restart after updates at night, and note the date on the case.",
    )),
)  # fmt: skip
