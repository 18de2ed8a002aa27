"""Word tables of the demo grammar.

A table is a list of entries; an entry maps attribute names to text. Templates
refer to an entry through a variable, for example ``{kind.plural}``.
"""

from random import Random


def table(columns, rows):
    """Build a table from ``|``-separated rows, one entry per line."""
    names = columns.split()
    entries = []
    for row in rows.strip().splitlines():
        cells = [cell.strip() for cell in row.split("|")]
        assert len(cells) == len(names), f"wrong number of cells: {row!r}"
        entries.append(dict(zip(names, cells)))
    return entries


def with_article(entries, column):
    """Add the attribute ``a``: the column's text with an indefinite article."""
    for entry in entries:
        article = "an" if entry[column][0] in "aeiou" else "a"
        entry["a"] = f"{article} {entry[column]}"
    return entries


def persons(names, pronouns):
    he, him, his, himself = pronouns.split()
    return [dict(name=name, he=he, him=him, his=his, himself=himself)
            for name in names.split()]


NAMES = persons(
    "Anna Bella Clara Daisy Ella Flora Greta Hazel Iris Julia Lily Mina Nora "
    "Olive Poppy Rosa Ruby Sofia Tilda Wilma", "she her her herself"
) + persons(
    "Adam Ben Carlo Davy Emil Felix Gus Henry Hugo Jasper Leo Max Milo Nico "
    "Otto Oscar Sam Theo Tom Victor", "he him his himself")

# The column "size" is the rank among all animals, for comparisons.
KINDS = with_article(table(
    "kind plural land house food sound colour legs size", """
fox       | foxes      | in the forest        | a cosy den              | blackberries      | barks    | red    | four | 19
bear      | bears      | in the forest        | a dry cave              | honey             | growls   | brown  | four | 30
squirrel  | squirrels  | in the forest        | a hollow tree           | nuts              | chatters | red    | four | 8
owl       | owls       | in the forest        | a nest of soft moss     | warm soup         | hoots    | brown  | two  | 13
rabbit    | rabbits    | in the meadow        | a snug burrow           | carrots           | squeaks  | grey   | four | 12
mouse     | mice       | in the meadow        | a tiny hut of straw     | seeds             | squeaks  | grey   | four | 4
mole      | moles      | in the meadow        | a long tunnel           | roots             | snuffles | black  | four | 6
lark      | larks      | in the meadow        | a nest of grass         | barley            | sings    | brown  | two  | 5
otter     | otters     | by the river         | a house on the bank     | fish              | whistles | brown  | four | 17
beaver    | beavers    | by the river         | a lodge of sticks       | bark              | grunts   | brown  | four | 20
heron     | herons     | by the river         | a nest of reeds         | fish              | croaks   | grey   | two  | 16
swan      | swans      | by the river         | a soft white nest       | water plants      | trumpets | white  | two  | 18
frog      | frogs      | by the pond          | a house under a leaf    | mushroom soup     | croaks   | green  | four | 3
duck      | ducks      | by the pond          | a nest among the reeds  | oats              | quacks   | yellow | two  | 11
turtle    | turtles    | by the pond          | a house with a round door | lettuce         | hisses   | green  | four | 10
newt      | newts      | by the pond          | a room under a stone    | wild peas         | chirps   | orange | four | 2
goat      | goats      | on the farm          | a wooden shed           | clover            | bleats   | white  | four | 23
pony      | ponies     | on the farm          | a warm stable           | apples            | neighs   | brown  | four | 27
hen       | hens       | on the farm          | a tidy coop             | corn              | clucks   | white  | two  | 9
dog       | dogs       | on the farm          | a kennel with a blue roof | bread           | barks    | black  | four | 21
seal      | seals      | by the sea           | a cave near the waves   | herring           | barks    | grey   | four | 26
crab      | crabs      | by the sea           | a castle of sand        | seaweed           | clicks   | red    | ten  | 1
gull      | gulls      | by the sea           | a nest on the cliff     | fish              | cries    | white  | two  | 14
pelican   | pelicans   | by the sea           | a hut on the pier       | fish              | grunts   | white  | two  | 22
penguin   | penguins   | on the snowy island  | a house of ice          | fish              | honks    | black  | two  | 15
walrus    | walruses   | on the snowy island  | a hall of snow          | clams             | roars    | brown  | four | 33
reindeer  | reindeer   | on the snowy island  | a shelter of pine       | moss              | grunts   | brown  | four | 29
husky     | huskies    | on the snowy island  | a snug tent             | stew              | howls    | grey   | four | 24
monkey    | monkeys    | in the jungle        | a house of leaves       | bananas           | chatters | brown  | two  | 25
parrot    | parrots    | in the jungle        | a nest in a palm tree   | mangoes           | talks    | green  | two  | 7
tiger     | tigers     | in the jungle        | a shady cave            | rice cakes        | roars    | orange | four | 31
elephant  | elephants  | in the jungle        | a garden with a high wall | melons          | trumpets | grey   | four | 35
camel     | camels     | in the desert        | a tent with red curtains | dates            | grunts   | brown  | four | 34
lion      | lions      | in the desert        | a cave of red stone     | pumpkin pie       | roars    | yellow | four | 32
zebra     | zebras     | in the desert        | a hut of clay           | grass             | snorts   | white  | four | 28
lizard    | lizards    | in the desert        | a bed on a flat rock    | figs              | hisses   | green  | four | 0
"""), "kind")
for _entry in KINDS:
    _entry["place"] = _entry["land"].split(" ", 1)[1]
    _entry["a_colour"] = ("an " if _entry["colour"] == "orange" else "a ") + _entry["colour"]

# The column "plot" is the kind of story that usually goes with the trait.
TRAITS = table("trait plot", """
brave      | rescue
gentle     | rescue
kind       | share
cheerful   | share
curious    | mystery
quiet      | mystery
clever     | build
busy       | build
patient    | learn
stubborn   | learn
shy        | fear
timid      | fear
proud      | quarrel
lively     | quarrel
dreamy     | lost
playful    | lost
""")

THINGS = with_article(table("noun full", """
kite     | red kite
key      | silver key
drum     | little drum
scarf    | blue scarf
boat     | wooden boat
bell     | golden bell
marble   | glass marble
umbrella | yellow umbrella
book     | book of songs
box      | music box
hat      | woolly hat
flute    | bamboo flute
lantern  | paper lantern
compass  | brass compass
mirror   | round mirror
basket   | green basket
"""), "full")

SPOTS = table("spot land", """
under the oldest oak        | in the forest
behind a mossy log          | in the forest
beside the path of ferns    | in the forest
near the hollow stump       | in the forest
among the tall daisies      | in the meadow
behind the stone wall       | in the meadow
beside the wild roses       | in the meadow
under the hay cart          | in the meadow
under the wooden bridge     | by the river
behind the mill wheel       | by the river
beside the willow roots     | by the river
among the smooth pebbles    | by the river
between the water lilies    | by the pond
behind the bent willow      | by the pond
beside the little dock      | by the pond
under a heap of leaves      | by the pond
behind the red barn         | on the farm
under the apple cart        | on the farm
beside the old well         | on the farm
near the garden gate        | on the farm
behind the sand dunes       | by the sea
beside the lighthouse       | by the sea
near the rock pools         | by the sea
under an upturned boat      | by the sea
behind the wall of ice      | on the snowy island
beside the frozen bay       | on the snowy island
under a bank of snow        | on the snowy island
near the tall iceberg       | on the snowy island
behind the waterfall        | in the jungle
under the banana tree       | in the jungle
among the long vines        | in the jungle
beside the muddy stream     | in the jungle
behind the three rocks      | in the desert
beside the cool spring      | in the desert
under the date palm         | in the desert
near the long dune          | in the desert
""")

SKILLS = table("do doing fail win", """
whistle          | whistling           | only a puff of air came out            | a clear tune rang through the air
juggle           | juggling            | every ball fell on the ground          | five balls danced in the air at once
paint            | painting            | the colours ran into a grey puddle     | the picture glowed like the evening sky
dance            | dancing             | two feet got tangled at the first turn | every step was as light as a feather
sing             | singing             | the first note sounded like a rusty door | the song was as sweet as spring rain
knit             | knitting            | the wool turned into one big knot      | a long striped sock was finished at last
bake bread       | baking bread        | the loaf was as hard as a brick        | the loaf came out golden and soft
play the fiddle  | playing the fiddle  | the strings screeched like a cat       | the fiddle laughed and sang
skip rope        | skipping rope       | the rope went round the wrong way      | the rope flew round a hundred times
draw maps        | drawing maps        | all the roads ended in a blot of ink   | every hill and road was in the right place
tell jokes       | telling jokes       | nobody understood the ending           | the whole crowd laughed out loud
stand on one leg | standing on one leg | the wobble began at once               | the clock struck ten and nothing wobbled
""")

FEARS = table("fear comfort", """
the dark        | the stars come out only when it is dark
thunder         | thunder is just the clouds clapping their hands
deep water      | the water carries you when you lie still
high places     | you only need to look at your own feet
loud noises     | a noise grows small when you know its name
shadows         | a shadow is just the light playing a game
the wind        | the wind only wants somebody to sing with
strangers       | every friend was a stranger once
being alone     | a good friend is never far away
making mistakes | every mistake is a small teacher
""")

PLANS = with_article(table("noun goal fail fix", """
raft     | sail to the other side       | the knots came loose              | tied every knot twice
tower    | look far over the hills      | it leaned over and fell           | made the bottom much wider
cart     | carry heavy things           | a wheel rolled away               | cut the wheels with more care
bridge   | visit friends across the gap | the middle sank                   | put a strong beam in the middle
windmill | grind flour for everyone     | a gust tore the sails             | sewed the sails with thick thread
sled     | race down the steepest hill  | it broke in two                   | chose much harder wood
swing    | fly almost up to the clouds  | the rope snapped                  | braided three ropes into one
house    | give every guest a warm bed   | the rain came through the roof    | laid the roof in two layers
wagon    | bring water to the gardens   | the water leaked away             | closed every crack with wax
oven     | bake a hundred cakes         | the smoke came out of the door    | added a tall chimney
"""), "noun")

VICTIMS = with_article(table("noun", """
beetle
snail
butterfly
ladybird
caterpillar
bumblebee
cricket
spider
"""), "noun")

TROUBLES = table("trouble tool rescue", """
was stuck in thick mud            | a flat board    | lifted the little one onto dry ground
had fallen into a deep hole       | a long rope     | pulled the little one up into the light
was trapped under a heavy stone   | a strong stick  | rolled the stone away
was floating away on a leaf       | a fishing net   | drew the leaf gently to the shore
was lost in the thick fog         | a bright lamp   | showed the little one the way home
was hanging from a thin twig      | a soft cushion  | caught the little one without a bump
was caught in a patch of thorns   | a pair of scissors | cut the thorns one by one
was shivering in the cold rain    | a big leaf      | made a roof for the little one
""")

NOISES = table("noise cause", """
a soft tapping   | a loose shutter that danced in the wind
a deep humming   | an old kettle that somebody had left on the fire
a low whistle    | the wind that played on an empty bottle
a gentle ringing | a small bell on the collar of a lost kitten
a quick rattle   | a cricket that rolled a nut in a tin cup
a long groan     | two branches that rubbed against each other
a faint song     | a shy toad that practised for the summer feast
a steady thump   | a wooden bucket that bumped against a wall
""")

SUMS = [dict(a=str(a), b=str(b), c=str(a + b)) for a in range(13) for b in range(13)]
DIFFERENCES = [dict(a=str(a), b=str(b), c=str(a - b)) for a in range(21) for b in range(a + 1)
               if b <= 12]
PRODUCTS = [dict(a=str(a), b=str(b), c=str(a * b)) for a in range(11) for b in range(11)]

NUMBERS = table("word list", """
three | 1, 2, 3
four  | 1, 2, 3, 4
five  | 1, 2, 3, 4, 5
six   | 1, 2, 3, 4, 5, 6
seven | 1, 2, 3, 4, 5, 6, 7
eight | 1, 2, 3, 4, 5, 6, 7, 8
nine  | 1, 2, 3, 4, 5, 6, 7, 8, 9
ten   | 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
""")

_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = ("January February March April May June July August September October "
           "November December").split()
DATES = [dict(name=names[i], before=names[i - 1], after=names[(i + 1) % len(names)], unit=unit)
         for names, unit in ((_DAYS, "day"), (_MONTHS, "month")) for i in range(len(names))]

COLOURS = table("subject colour", """
the sky       | blue
the grass     | green
the snow      | white
the sun       | yellow
the night     | black
a lemon       | yellow
a tomato      | red
an orange     | orange
a carrot      | orange
a cherry      | red
a leaf        | green
a cloud       | white
a plum        | purple
a chestnut    | brown
a strawberry  | red
a pea         | green
""")

OPPOSITES = table("word opposite", """
big    | small
small  | big
hot    | cold
cold   | hot
day    | night
night  | day
happy  | sad
sad    | happy
fast   | slow
slow   | fast
high   | low
low    | high
young  | old
old    | young
wet    | dry
dry    | wet
loud   | quiet
quiet  | loud
light  | heavy
heavy  | light
soft   | hard
hard   | soft
early  | late
late   | early
open   | closed
closed | open
full   | empty
empty  | full
""")

RIDDLES = table("question answer", """
What has hands but cannot clap              | a clock
What has teeth but cannot bite              | a comb
What gets wet while it dries you            | a towel
What goes up but never comes down           | your age
What has a neck but no head                 | a bottle
What has one eye but cannot see             | a needle
What runs all day but never gets tired      | a river
What has many leaves but is not a tree      | a book
""")

FEELINGS = table("feeling advice", """
sad    | Take a slow breath and think of somebody who likes you
tired  | Close your eyes for a while and let the world wait
bored  | Go outside and look for three things you have never seen
afraid | Hold the hand of a friend and take one small step
angry  | Count slowly to ten and drink a glass of water
lonely | Knock on the door of a neighbour and say hello
happy  | Share it with somebody and it will grow
hungry | Eat a red apple and a slice of fresh bread
""")


# Animals that the model does not know.
STRANGERS = with_article([{"kind": kind} for kind in (
    "cat cow horse whale shark snake pig dragon unicorn ant bee dinosaur hedgehog kangaroo giraffe "
    "panda dolphin octopus eagle pigeon hamster wombat koala gorilla leopard rhino hippo bat moth "
    "bison llama spaniel flamingo ostrich jellyfish salmon tuna lobster vampire robot").split()], "kind")

# The two tables below occur only in questions that the model cannot answer.
UNKNOWN = table("topic", """
president of France
history of Rome
theory of relativity
stock market
weather tomorrow
price of gold
speed of light
French revolution
periodic table
internet
best programming language
population of Japan
football world cup
human brain
solar system
meaning of life
recipe for lasagna
quantum computer
train to Berlin
latest news
steam engine
movie with the robot
second world war
planet Mars
""")

_SYLLABLES = """ba be bo ca ce con da de di el en er fa fi ga gen ha hi in is ja jo ka ki la le lo ma mi mon na ne
no o or pa per po qua ra re ri sa se si sta ta te ti tor u va ve vi wa we xi ya yo za zo""".split()


def _nonsense(count):
    random = Random(0)
    made = []
    for _ in range(count):
        word = "".join(random.choices(_SYLLABLES, k=random.randint(1, 4)))
        word += random.choice(["", "", "n", "s", "ck", "t", "x", "ing", "ly", "7"])
        made.append(dict(word=random.choice([word, word, word.capitalize(), word.upper()])))
    return made


NONSENSE = _nonsense(4000)
