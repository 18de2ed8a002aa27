"""Story rules of the demo grammar. The syntax is explained in grammar.py."""

STORY_RULES = {
    "story": ["<opening> <home>\n\n<plot>"],
    "plot": ["<lost>", "<learn>", "<rescue>", "<share>", "<fear>", "<quarrel>", "<build>", "<mystery>"],

    "opening": [
        "Once upon a time, {kind.land}, there lived a {trait.trait} {kind.kind} named {hero.name}.",
        "Once upon a time there was a {trait.trait} {kind.kind} named {hero.name} who lived {kind.land}.",
        "There once was a {trait.trait} {kind.kind} called {hero.name}.",
        "Long ago, a {trait.trait} {kind.kind} named {hero.name} lived {kind.land}.",
        "{hero.Name} was a {trait.trait} {kind.kind} who lived {kind.land}.",
        "Far away, {kind.land}, lived a {trait.trait} {kind.kind} whose name was {hero.name}.",
        "In the days when animals could speak, a {trait.trait} {kind.kind} named {hero.name} lived {kind.land}.",
        "A {trait.trait} {kind.kind} named {hero.name} lived {kind.land}, far from the noise of the city.",
        "The {trait.trait} {kind.kind} {hero.name} lived {kind.land} with three sisters and one umbrella.",
    ],
    "home": [
        "{hero.His} home was {kind.house}, and {hero.he} loved it (dearly|with all {hero.his} heart).",
        "{hero.He} slept in {kind.house} and ate {kind.food} for breakfast.",
        "Every morning {hero.he} had some {kind.food} and listened to the (birds|wind|rain).",
        "{hero.He} had {kind.house}, a warm blanket, and a kitchen that smelled of {kind.food}.",
        "Everybody in that (part of the world|country) knew {hero.him} by name.",
        "Nothing made {hero.him} happier than {kind.food} and a (good song|sunny day|long walk).",
        "Visitors were always welcome in {hero.his} home, which was {kind.house}.",
        "{hero.He} liked {kind.food}, quiet evenings, and the smell of (rain|fresh bread|wild mint).",
    ],
    "day": [
        "One (bright|windy|golden|misty) morning",
        "On the first day of (spring|summer|autumn)",
        "One (warm|cool|lazy) afternoon",
        "On a (cloudy|rainy|sunny) Sunday",
        "Early one (Monday|Friday)",
        "Just after breakfast one day",
    ],
    "friend": [
        "{friend.name} the {other.kind}",
        "{hero.his} friend {friend.name} the {other.kind}",
        "{hero.his} (wise|merry|polite|calm) neighbour {friend.name} the {other.kind}",
        "a {other.kind} named {friend.name}",
    ],

    # A treasure is lost and found again with a friend's help.
    "lost": ["<lost_1> <lost_2> <lost_3>\n\n<lost_4> <lost_5> <lost_6> <lost_7>\n\n<lost_8> <lost_9>"],
    "lost_1": [
        "The thing {hero.he} loved most was {thing.a}.",
        "{hero.He} owned {thing.a} that had belonged to {hero.his} grandmother.",
        "Wherever {hero.he} went, {hero.he} took along {thing.a}.",
        "On {hero.his} birthday {hero.he} had been given {thing.a}.",
    ],
    "lost_2": [
        "<day>, the {thing.noun} was gone.",
        "<day>, {hero.name} woke up and could not find the {thing.noun} anywhere.",
        "But <lost_when>, the {thing.noun} disappeared.",
    ],
    "lost_when": ["during a storm", "after a long game", "between lunch and supper", "on the way home"],
    "lost_3": [
        "{hero.He} looked under the bed, behind the door, and even inside the teapot.",
        "{hero.He} searched every corner twice, but all {hero.he} found was dust.",
        "{hero.He} sat down on the doorstep, and a big tear rolled down {hero.his} cheek.",
        "\"It must be somewhere,\" {hero.he} said, and {hero.he} turned the whole house upside down.",
    ],
    "lost_4": [
        "Soon <friend> came by.",
        "Just then <friend> walked past and stopped.",
        "The first one to hear about it was <friend>.",
        "At noon {hero.he} met <friend> on the road.",
    ],
    "lost_5": [
        "\"When did you see the {thing.noun} last?\" asked {friend.name}.",
        "\"Do not cry,\" said {friend.name}, \"because four eyes see more than two.\"",
        "\"Let us walk back along your own tracks,\" said {friend.name}.",
        "\"A lost thing waits quietly until somebody looks with patience,\" said {friend.name}.",
    ],
    "lost_6": [
        "So they searched {spot.spot}, step by step, until the sun stood low.",
        "Together they walked through {kind.place} and looked at every stone.",
        "They asked the ants, the bees, and an old snail, who pointed the way with one horn.",
    ],
    "lost_7": [
        "And there, {spot.spot}, lay the {thing.noun}, a little dusty but not broken.",
        "At last {friend.name} saw something shine {spot.spot}, and it was the {thing.full}.",
        "{spot.Spot} they found the {thing.full}, with a sleepy beetle on top of it.",
    ],
    "lost_8": [
        "{hero.Name} was so glad that {hero.he} danced in a circle.",
        "{hero.Name} laughed and hugged {friend.name} with both arms.",
        "\"Thank you,\" said {hero.name}, \"you have found more than a {thing.noun} today.\"",
        "That evening the two friends shared {kind.food} and told each other stories.",
    ],
    "lost_9": [
        "From then on {hero.he} knew that a friend is the best treasure of all.",
        "And {hero.he} learned that a trouble shared is only half a trouble.",
        "Since that day {hero.he} has always put {hero.his} things back in their place.",
        "For what two people look for together is seldom lost for long.",
    ],

    # A skill is learned by practice.
    "learn": ["<learn_1> <learn_2> <learn_3>\n\n<learn_4> <learn_5> <learn_6>\n\n<learn_7> <learn_8> <learn_9>"],
    "learn_1": [
        "More than anything else {hero.he} wanted to {skill.do}.",
        "{hero.He} had one great wish, and that was to {skill.do}.",
        "At night {hero.he} often dreamed of {skill.doing}.",
        "Everyone in the family was good at {skill.doing}, except {hero.name}.",
    ],
    "learn_2": [
        "<day>, {hero.he} tried it for the first time, but {skill.fail}.",
        "{hero.He} tried it in secret, but {skill.fail}.",
        "{hero.He} closed {hero.his} eyes and began, but {skill.fail}.",
    ],
    "learn_3": [
        "\"I will never learn it,\" {hero.he} sighed.",
        "Two crows saw it and giggled until their feathers shook.",
        "{hero.His} ears grew hot, and {hero.he} wanted to hide.",
        "{hero.He} tried again and again, and it only got worse.",
    ],
    "learn_4": [
        "The next day {hero.he} went to see <friend>, who was a master at {skill.doing}.",
        "Luckily <friend> had watched it all from a window.",
        "\"May I show you something?\" asked <friend>.",
    ],
    "learn_5": [
        "\"Nobody is born a master,\" said {friend.name}, \"so begin with one small piece.\"",
        "\"Do it slowly ten times before you do it fast once,\" said {friend.name}.",
        "\"I needed a hundred days,\" said {friend.name}, \"and I failed on ninety of them.\"",
        "\"Listen first, then try, and then rest,\" said {friend.name} kindly.",
    ],
    "learn_6": [
        "So {hero.name} practised {spot.spot}, every single morning, for (three|four|six) weeks.",
        "From Monday to Saturday {hero.name} practised, and on Sunday {hero.he} slept.",
        "{hero.Name} practised when it rained, and {hero.he} practised when it snowed.",
    ],
    "learn_7": [
        "Then came the great summer feast, and everybody gathered {spot.spot}.",
        "One evening the neighbours asked for some entertainment.",
        "When the moon was full, {hero.he} finally stood in front of all {hero.his} friends.",
    ],
    "learn_8": [
        "{hero.He} took a deep breath, and {skill.win}.",
        "{hero.His} knees trembled a little, but then {skill.win}.",
        "{hero.He} thought of {friend.name}, smiled, and {skill.win}.",
    ],
    "learn_9": [
        "\"You see,\" said {friend.name}, \"patience is stronger than talent.\"",
        "Even the crows on the roof fell silent, and then asked for lessons.",
        "And that is how {hero.name} found out that practice opens every door.",
        "Everyone clapped for a long time, and {friend.name} clapped the loudest.",
    ],

    # Somebody small is in trouble and is rescued.
    "rescue": ["<rescue_1> <rescue_2> <rescue_3>\n\n<rescue_4> <rescue_5> <rescue_6>\n\n<rescue_7> <rescue_8>"],
    "rescue_1": [
        "<day>, {hero.he} heard a thin voice {spot.spot}.",
        "<day>, {hero.he} went for a walk and heard somebody call for help.",
        "<day>, a cry came from far away.",
    ],
    "rescue_2": [
        "It was {victim.a}, and it {trouble.trouble}.",
        "{victim.A} {trouble.trouble} and could not get away.",
        "{spot.Spot}, {victim.a} {trouble.trouble}.",
    ],
    "rescue_3": [
        "\"Please help me,\" cried the {victim.noun}, \"for I am small and very tired.\"",
        "The {victim.noun} had called for hours, but nobody had stopped.",
        "A (crow|lazy snake|fat toad) had passed by and only shrugged.",
    ],
    "rescue_4": [
        "{hero.Name} did not wait a moment.",
        "{hero.Name} was frightened too, but {hero.he} did not run away.",
        "\"Hold on,\" called {hero.name}, \"I will be right back.\"",
    ],
    "rescue_5": [
        "{hero.He} ran home through the wind and came back with {trouble.tool}.",
        "{hero.He} borrowed {trouble.tool} from <friend>, who came along at once.",
        "In {hero.his} bag {hero.he} found {trouble.tool}, and that was just what was needed.",
    ],
    "rescue_6": [
        "Very carefully {hero.he} {trouble.rescue}.",
        "With all {hero.his} strength {hero.he} {trouble.rescue}.",
        "Inch by inch, without a single word, {hero.he} {trouble.rescue}.",
    ],
    "rescue_7": [
        "\"You are a true hero,\" whispered the {victim.noun}.",
        "The {victim.noun} shook itself, laughed, and bowed to {hero.him}.",
        "\"One day I will help you as well,\" promised the {victim.noun}, and everybody smiled.",
        "They drank hot tea together until the {victim.noun} was warm again.",
    ],
    "rescue_8": [
        "And indeed, the next winter the {victim.noun} led {hero.him} out of a snowstorm.",
        "And so {hero.name} learned that nobody is too small to be a friend.",
        "Courage, {hero.he} thought, is being afraid and helping anyway.",
        "That night {hero.name} slept better than ever before.",
    ],

    # Food is shared and the kindness comes back.
    "share": ["<share_1> <share_2>\n\n<share_3> <share_4> <share_5> <share_6>\n\n<share_7> <share_8> <share_9>"],
    "share_1": [
        "<day>, {hero.he} gathered a whole basket of {kind.food}.",
        "<day>, {hero.he} cooked a big pot of soup and set the table.",
        "<day>, {hero.he} baked a (plum|cherry|cheese) cake as round as the moon.",
    ],
    "share_2": [
        "It was enough for a week, and {hero.he} was looking forward to every bite.",
        "The smell drifted over {kind.place} like a friendly cloud.",
        "\"This will be the best supper of the year,\" {hero.he} said to {hero.himself}.",
    ],
    "share_3": [
        "Then there was a knock at the door, and outside stood <friend>.",
        "On the way home {hero.he} met <friend>, who looked pale and thin.",
        "{spot.Spot} sat <friend>, with an empty bowl.",
    ],
    "share_4": [
        "\"The flood has taken everything I had,\" said {friend.name} in a low voice.",
        "\"I have walked for three days without a meal,\" said {friend.name}.",
        "\"My garden gave nothing this year,\" said {friend.name}, \"not even one turnip.\"",
    ],
    "share_5": [
        "{hero.Name} looked at {hero.his} food for a moment.",
        "For one breath {hero.name} thought of the long winter.",
        "{hero.Name} did not have to think for long.",
    ],
    "share_6": [
        "Then {hero.he} cut everything into two equal halves.",
        "\"Sit down and eat with me,\" {hero.he} said, \"for there is enough for both of us.\"",
        "Then {hero.he} filled a second plate up to the brim.",
    ],
    "share_7": [
        "A year went by, and {friend.name} came back with {thing.a} as a present.",
        "When spring came, {thing.a} lay in front of the door, with a note from {friend.name}.",
        "Many months later {hero.name} fell ill, and it was {friend.name} who brought soup every day.",
    ],
    "share_8": [
        "\"You gave me half of all you had,\" said {friend.name}, \"so half of my luck is yours.\"",
        "\"I have not forgotten that evening,\" said {friend.name}.",
        "\"A shared meal feeds two hearts,\" said {friend.name} with a wink.",
    ],
    "share_9": [
        "Ever since, there have been two plates on the table.",
        "And {hero.name} understood that kindness never gets smaller when you give it away.",
        "So they sat together, ate {kind.food}, and laughed until the candles went out.",
    ],

    # A fear is overcome.
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
