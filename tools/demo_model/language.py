"""The demo language: its grammar, and random stories and dialogues."""

import lexicon
from dialogues import SYSTEM_PROMPTS, TALK_RULES, TOPICS
from grammar import Grammar
from stories import STORY_RULES

ANSWERS = tuple(dict.fromkeys(answer for _, pairs in TOPICS for _, answer in pairs))

BY_SIZE = sorted(lexicon.KINDS, key=lambda kind: int(kind["size"]))

GRAMMAR = Grammar(
    rules={**STORY_RULES, **TALK_RULES},
    variables={
        "hero": lexicon.NAMES, "friend": lexicon.NAMES, "kind": lexicon.KINDS, "other": lexicon.KINDS,
        "trait": lexicon.TRAITS, "thing": lexicon.THINGS, "spot": lexicon.SPOTS, "skill": lexicon.SKILLS,
        "fear": lexicon.FEARS, "plan": lexicon.PLANS, "victim": lexicon.VICTIMS,
        "trouble": lexicon.TROUBLES, "noise": lexicon.NOISES,
        "larger": BY_SIZE[1:], "smaller": BY_SIZE[:-1], "item": lexicon.COLOURS,
        "sum": lexicon.SUMS, "difference": lexicon.DIFFERENCES, "product": lexicon.PRODUCTS,
        "number": lexicon.NUMBERS, "date": lexicon.DATES, "pair": lexicon.OPPOSITES,
        "riddle": lexicon.RIDDLES, "feeling": lexicon.FEELINGS, "stranger": lexicon.STRANGERS, "unknown": lexicon.UNKNOWN,
        "nonsense": lexicon.NONSENSE, "nonsense_2": lexicon.NONSENSE, "nonsense_3": lexicon.NONSENSE,
    },
    relations={
        # The two main characters differ in pronoun and kind, so every pronoun is clear.
        ("hero", "friend"): lambda hero, friend: hero["he"] != friend["he"],
        ("kind", "other"): lambda kind, other: kind["land"] == other["land"] and kind is not other,
        ("kind", "spot"): lambda kind, spot: kind["land"] == spot["land"],
        ("larger", "smaller"): lambda larger, smaller: int(larger["size"]) > int(smaller["size"]),
    },
    starts=ANSWERS,
    keys=("hero", "kind", "larger", "item", "sum", "difference", "product", "number", "date",
          "pair", "riddle", "feeling"),
    rule_keys={"plot": ("trait", "plot")},
)


def make_story(random):
    """Return a story as plain text."""
    bound = {name: random.randrange(len(GRAMMAR.variables[name])) for name in ("hero", "kind", "trait")}
    return GRAMMAR.generate("story", random, bound)


def make_dialogue(random):
    """Return a dialogue as a list of messages."""
    messages = []
    if random.random() < 0.2:
        messages.append({"role": "system", "content": random.choice(SYSTEM_PROMPTS)})
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        _, pairs = random.choices(TOPICS, weights=[weight for weight, _ in TOPICS])[0]
        bound = {}
        for i, (question, answer) in enumerate(pairs):
            if i > 0 and random.random() < 0.5:
                break
            messages.append({"role": "user", "content": make_question(question, random, bound)})
            messages.append({"role": "assistant", "content": GRAMMAR.generate(answer, random, bound)})
    return messages


def make_question(rule, random, bound):
    """Return a question, now and then in lower case or without its last mark."""
    text = GRAMMAR.generate(rule, random, bound, steer=False)
    if random.random() < 0.15:
        text = text.lower()
    if random.random() < 0.15:
        text = text.rstrip(".!?")
    return text
