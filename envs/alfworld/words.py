"""The vocabulary of the small word-level policy: every word of generated games, most words of real ones.

    [envs/alfworld/words] -> warmstart (makes the tokenizer)

Left out: nothing that a generated game, a scripted response or a lean skill note can say (a test plays them all), and
human instructions, which no task uses.
"""

from envs.alfworld.players import STYLE
from envs.alfworld.rooms import LAMPS, ROOMS
from envs.alfworld.sight import RECEPTACLES

NUMBERS = 60  # instances of one kind of thing; real games have fewer
OBJECTS = (  # ALFWorld's, besides those of the generated rooms
    *("alarmclock", "apple", "baseballbat", "bathtub", "book", "bowl", "box", "bread", "butterknife", "candle", "cd"),
    *("cellphone", "chair", "cloth", "creditcard", "cup", "curtains", "desklamp", "dishsponge", "egg", "floorlamp"),
    *("fork", "glassbottle", "handtowel", "houseplant", "kettle", "keychain", "knife", "ladle", "laptop", "lettuce"),
    *("mirror", "mug", "newspaper", "pan", "papertowelroll", "pen", "pencil", "peppershaker", "pillow", "plate"),
    *("plunger", "pot", "potato", "remotecontrol", "saltshaker", "scrubbrush", "showerglass", "sink", "soapbar"),
    *("soapbottle", "spatula", "spoon", "spraybottle", "statue", "teddybear", "television", "tennisracket"),
    *("tissuebox", "toiletpaper", "tomato", "towel", "vase", "watch", "wateringcan", "window", "winebottle"),
)
PROMPT = "task before now can start : ; , . > ' in/on nothing happens closed took moved done on off at hold normal"
COMMANDS = "go to take from move put open close examine use heat clean cool slice sliced with in inventory look help"
TASKS = "put a some two clean hot cool cold find them it and look at under the examine with"
THOUGHTS = "is i take it open wrong put away must be goes in one done more may usually anywhere am not sure try this"
SKILLS = "then lamp else target where was other too"
TAGS = "<think> </think> <action> </action>"


def words() -> list[str]:
    """Sorted, each once, lower case."""
    said = " ".join((PROMPT, COMMANDS, TASKS, THOUGHTS, SKILLS, TAGS)).split()
    style = [word for variants in STYLE.values() for phrase in variants for word in phrase.split()]
    world = [name for kind in ROOMS.values() for name in (*kind.receptacles, *kind.homes, *kind.clutter)]
    numbers = [str(number) for number in range(1, NUMBERS + 1)]
    return sorted({*said, *style, *world, *LAMPS, *RECEPTACLES, *OBJECTS, *numbers})
