"""Every word that a small policy may meet on the encyclopaedia's questions, for its tokenizer.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

Words are what stands between blanks in lean prompts, lean skills and scripted responses. Left out: words of real
questions, which a tokenizer of so few words cannot hold.
"""

from envs.search.encyclopaedia import EITHER, NAMES, RELATIONS, VALUES
from envs.search.players import STYLE
from envs.search.prompts import plain

TAGS = "<think> </think> <search> </search> <answer> </answer>"
FRAME = "question search page empty nothing turn of . ?"  # of lean prompts
THOUGHTS = "this i know where to look just guess no more turns is"  # beside STYLE
NOTES = """first ask the inner one then outer about its value year each name smaller larger older newer answer only what
an entry says search with its word"""  # of skills/search/lean, beside the house style


def vocabulary(max_turns: int) -> list[str]:
    """Sorted words."""
    texts = [TAGS, FRAME, THOUGHTS, NOTES, *map(str, range(1, max_turns + 1))]
    texts += [phrase for phrases in STYLE.values() for phrase in phrases]
    texts += [plain(name) for pools in NAMES.values() for name in pools]
    texts += [plain(value) for values in VALUES.values() for value in values]
    for relation in RELATIONS:
        parts = relation.key, relation.word, relation.ask, relation.noun, relation.entry, relation.decoy
        texts += [plain(_without_slots(part)) for part in parts]
    texts += [_without_slots(phrase) for phrase in EITHER.values()]
    return sorted({word for text in texts for word in text.split()})


def _without_slots(template: str) -> str:
    return template.format(x="", y="", w="", a="", b="")
