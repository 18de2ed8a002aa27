"""Story rules of the demo grammar. The syntax is explained in grammar.py."""

from more_stories import MORE_STORY_RULES

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
} | MORE_STORY_RULES
