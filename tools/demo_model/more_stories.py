"""The second half of the story rules: plots from "fear" on. The syntax is explained in grammar.py."""

MORE_STORY_RULES = {
    "fear": ["<fear_1> <fear_2> <fear_3>\n\n<fear_4> <fear_5> <fear_6>\n\n<fear_7> <fear_8> <fear_9>"],
    "fear_1": [
        "There was only one problem, and it was that {hero.he} was afraid of {fear.fear}.",
        "{hero.He} had a secret that nobody knew, for {hero.he} was terribly afraid of {fear.fear}.",
        "Nothing in the world scared {hero.him} as much as {fear.fear}.",
    ],
    "fear_2": [
        "When the others went out to play, {hero.he} stayed at home and counted spoons.",
        "Whenever {hero.he} thought of it, {hero.he} pulled the blanket over {hero.his} nose.",
        "{hero.He} always found an excuse, such as a sore foot or a broken shoe.",
    ],
    "fear_3": [
        "<day>, <friend> noticed it.",
        "<day>, {hero.he} told <friend> about it in a whisper.",
        "But <friend> had sharp eyes and a warm heart.",
    ],
    "fear_4": [
        "\"I was afraid of {fear.fear} too, when I was young,\" said {friend.name}.",
        "{friend.Name} did not laugh, but sat down and nodded for a while.",
        "\"Fear is like a fog,\" said {friend.name}, \"for it vanishes when you walk into it.\"",
    ],
    "fear_5": [
        "\"Remember that {fear.comfort},\" {friend.he} added.",
        "\"My mother used to say that {fear.comfort},\" {friend.he} said.",
        "\"I will tell you something that helped me, which is that {fear.comfort},\" {friend.he} said softly.",
    ],
    "fear_6": [
        "They made a plan to go {spot.spot} together and to count every step.",
        "{friend.He} reached out a hand, and slowly {hero.name} took it.",
        "So they practised a little bit each evening, first for one minute, then for two.",
    ],
    "fear_7": [
        "On the third evening {hero.name} dared to do it alone.",
        "{hero.His} heart was beating like a drum, but {hero.he} kept going.",
        "After ten steps {hero.he} opened one eye, and after twenty steps the other.",
    ],
    "fear_8": [
        "And what a surprise it was, because it was almost beautiful.",
        "Nothing bad happened at all.",
        "\"Is that really everything?\" asked {hero.name}, and {friend.name} laughed.",
    ],
    "fear_9": [
        "Since that day {fear.fear} and {hero.name} have been old friends.",
        "And when a little one is afraid today, {hero.he} is the first to help.",
        "Being brave, {hero.he} found, begins with a single step.",
    ],

    # Two friends quarrel over a thing and make up.
    "quarrel": ["<quarrel_1> <quarrel_2> <quarrel_3>\n\n<quarrel_4> <quarrel_5> <quarrel_6>\n\n<quarrel_7> <quarrel_8> <quarrel_9>"],
    "quarrel_1": [
        "<day>, {hero.he} and <friend> found {thing.a} {spot.spot}.",
        "<day>, somebody had left {thing.a} {spot.spot}, and {hero.he} saw it at the same time as <friend>.",
        "<day>, a pedlar came along and gave {thing.a} to {hero.him} and to <friend>.",
    ],
    "quarrel_2": [
        "\"It is mine, because I saw it first,\" said {hero.name}.",
        "\"I need the {thing.noun} much more than you do,\" said {hero.name}.",
        "Both of them wanted the {thing.noun}, and neither wanted to wait.",
    ],
    "quarrel_3": [
        "\"No, it is mine,\" shouted {friend.name}, and stamped the ground.",
        "{friend.Name} became as red as a beetroot.",
        "\"Then you are not my friend any longer,\" answered {friend.name}.",
    ],
    "quarrel_4": [
        "{hero.He} pulled on one side, {friend.he} pulled on the other, and suddenly there was a loud crack.",
        "They pulled so hard that both of them tumbled into a puddle, and the {thing.noun} cracked.",
        "While they argued, the {thing.noun} slipped out of their hands and broke.",
    ],
    "quarrel_5": [
        "Without another word they went home in opposite directions.",
        "For two long days they did not speak to each other.",
        "Each of them sat alone that evening, and the soup tasted of nothing.",
    ],
    "quarrel_6": [
        "{hero.Name} looked at the empty chair on the other side of the table.",
        "\"What is a {thing.noun} without a friend?\" thought {hero.name}.",
        "It was far too quiet in {kind.house}.",
    ],
    "quarrel_7": [
        "On the third morning {hero.he} took a jar of jam and set out to say sorry.",
        "{hero.He} opened the door to go, and there stood {friend.name} with the same idea.",
        "Halfway over the hill the two of them met, and both began to speak at once.",
    ],
    "quarrel_8": [
        "\"I was wrong,\" said {hero.name}, \"and I have missed you.\"",
        "\"I am sorry,\" they said together, and then they had to laugh.",
        "{friend.Name} gave {hero.him} a hug before {hero.he} could finish the sentence.",
    ],
    "quarrel_9": [
        "They repaired the {thing.noun} with glue and string, and now it belongs to both.",
        "Now one has the {thing.noun} on even days, and the other on odd days.",
        "For a thing can be replaced, but a friend cannot.",
    ],

    # Something is built, breaks, and is built again.
    "build": ["<build_1> <build_2> <build_3>\n\n<build_4> <build_5> <build_6>\n\n<build_7> <build_8> <build_9>"],
    "build_1": [
        "<day>, {hero.he} decided to build {plan.a}, for {hero.he} wanted to {plan.goal}.",
        "{hero.He} had drawn a plan for {plan.a} on the back of an old letter.",
        "\"With {plan.a} I could {plan.goal},\" {hero.he} thought one evening.",
    ],
    "build_2": [
        "{hero.He} collected boards, nails, and string, and began to work {spot.spot}.",
        "All day long the hammer could be heard {spot.spot}.",
        "{hero.He} hardly slept, and {hero.he} forgot to eat {hero.his} {kind.food}.",
    ],
    "build_3": [
        "But when the {plan.noun} was tried for the first time, {plan.fail}.",
        "The {plan.noun} looked splendid, until {plan.fail}.",
        "A crowd came to watch, and right then {plan.fail}.",
    ],
    "build_4": [
        "{hero.Name} stared at the mess and did not say a word.",
        "\"That was a lot of work for nothing,\" groaned {hero.name}.",
        "Some laughed, some went home, and only <friend> stayed.",
    ],
    "build_5": [
        "{friend.Name} the {other.kind} picked up a board and turned it around.",
        "\"Now you know one way that does not work,\" said {friend.name} the {other.kind}.",
        "\"A mistake is a lesson with a loud voice,\" said {friend.name} the {other.kind}.",
    ],
    "build_6": [
        "So they began once more, and this time {hero.he} {plan.fix}.",
        "They measured everything twice, and {hero.he} {plan.fix}.",
        "{friend.He} held the lamp while {hero.he} {plan.fix}.",
    ],
    "build_7": [
        "After (five|seven|nine) days the new {plan.noun} was ready.",
        "When the last nail was in, they painted the {plan.noun} (blue|red|green) and (yellow|white|gold).",
        "At sunrise the {plan.noun} stood there, strong and proud.",
    ],
    "build_8": [
        "It held, and now they could {plan.goal} whenever they liked.",
        "Nobody laughed now, because everybody wanted to {plan.goal}.",
        "{hero.Name} wrote both names on it in big letters.",
    ],
    "build_9": [
        "\"The first try teaches and the second try works,\" {hero.he} said.",
        "And on quiet days {hero.he} is already drawing the next plan.",
        "Good things take time, and they are better with company.",
    ],

    # A strange noise at night has a harmless cause.
    "mystery": ["<mystery_1> <mystery_2> <mystery_3>\n\n<mystery_4> <mystery_5> <mystery_6>\n\n<mystery_7> <mystery_8> <mystery_9>"],
    "mystery_1": [
        "One night {noise.noise} woke {hero.him} up.",
        "Late one evening, {noise.noise} came from outside.",
        "For three nights {noise.noise} had kept everybody awake.",
    ],
    "mystery_2": [
        "It seemed to come from somewhere {spot.spot}.",
        "It stopped, it started again, and it came closer.",
        "{hero.He} held {hero.his} breath and listened.",
    ],
    "mystery_3": [
        "\"That is a ghost,\" said a nervous (hare|goose|donkey), and hid under the table.",
        "Some said it was a dragon, and others said it was a thief.",
        "\"Nobody should go out there,\" warned the old (toad|goose|donkey).",
    ],
    "mystery_4": [
        "But {hero.name} wanted to know, so {hero.he} woke <friend>.",
        "\"I would rather know than guess,\" said {hero.name}, and went to fetch <friend>.",
        "{hero.Name} put on a warm coat and knocked at the window of <friend>.",
    ],
    "mystery_5": [
        "On tiptoe they crept through {kind.place}, one behind the other.",
        "The moon hid behind a cloud, and every bush looked like a giant.",
        "Step by step the sound grew louder.",
    ],
    "mystery_6": [
        "\"Are you scared?\" asked {friend.name} the {other.kind}, and {hero.name} nodded.",
        "\"Stay close to me,\" whispered {friend.name} the {other.kind}.",
        "{friend.Name} the {other.kind} tried to hum a tune, but it came out rather shaky.",
    ],
    "mystery_7": [
        "They peeped around the corner, and it was only {noise.cause}.",
        "{hero.He} lifted the light, and there it was, {noise.cause}.",
        "What they found was no monster at all, but {noise.cause}.",
    ],
    "mystery_8": [
        "They laughed so much that they had to sit down.",
        "\"We must tell the others,\" said {friend.name}, \"or they will never sleep again.\"",
        "{hero.Name} put everything in order, and it was silent at once.",
    ],
    "mystery_9": [
        "The biggest monsters, {hero.he} wrote in {hero.his} diary, live in our heads.",
        "And the next time something rustled, nobody ran, but everyone asked what it was.",
        "Those who ask are afraid for a minute, and those who never ask are afraid for years.",
    ],
}
