"""From a seed to a fictional encyclopaedia and its questions: the data that needs no download.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

Works, people, companies and towns, each with a short entry per fact. Questions use everyday words ("who wrote X?"), the
entries a house style ("X was penned by Y."), and for each everyday word there are entries that share it and tell
nothing ("People wrote about X."). Whoever searches with the words of the question finds those; whoever knows the house
words finds the fact. That is what there is to learn here, and all that the skill notes tell. Every name is two words of
a pool, so that a policy with a small vocabulary can read names that it never saw. Left out: ambiguity; every fact has
one value.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, zip_longest
from math import lcm

import numpy as np

from envs.search.passages import Passage
from envs.search.questions import KINDS, Question

PREFIX = "made"  # of every source: made-direct, made-attribute, made-multi_hop, made-comparison


@dataclass(frozen=True)
class Relation:
    """One kind of fact, in the words of the question and in those of the entries. {x}: its subject, {y}: its value,
    {w}: the house word. Of two relations of one subject no two entries are alike but for names and house word."""

    key: str  # the question's word for it
    word: str  # the house word: what a query needs beside the subject's name
    subject: str  # work, person, company or town
    value: str  # one of these, or year, trade, river
    kind: str  # of a question about it alone
    ask: str
    noun: str  # the value, described by the subject; "" where it is no entity
    entry: str  # five words that count for the index, so that no relation is found more easily
    decoy: str  # shares the question's word, is shorter than the entry, tells nothing


RELATIONS = (
    Relation("wrote", "penned", "work", "person", "direct", "who wrote {x}", "the person who wrote {x}",
             "{x} was {w} by {y}.", "People wrote about {x}."),
    Relation("published", "issued", "work", "company", "direct", "which company published {x}",
             "the company that published {x}", "{x} was {w} through {y}.", "Rumours were published about {x}."),
    Relation("set", "unfolds", "work", "town", "attribute", "where is {x} set", "the town where {x} is set",
             "{x} {w} in {y}.", "{x} was set aside."),
    Relation("finished", "dated", "work", "year", "direct", "when was {x} finished", "",
             "{x} is {w} to the year {y}.", "Nobody finished {x}."),
    Relation("born", "hails", "person", "town", "attribute", "where was {x} born", "the town where {x} was born",
             "{x} {w} from {y}.", "{x} was born lucky."),
    Relation("job", "trained", "person", "trade", "attribute", "what job has {x}", "",
             "{x} {w} as a master {y}.", "{x} did the job well."),
    Relation("employs", "serves", "person", "company", "attribute", "which company employs {x}",
             "the company that employs {x}", "{x} {w} at {y}.", "{x} employs tact."),
    Relation("taught", "schooled", "person", "person", "direct", "who taught {x}", "the person who taught {x}",
             "{x} was {w} by {y}.", "Travel taught {x}."),
    Relation("founded", "chartered", "company", "person", "direct", "who founded {x}", "the person who founded {x}",
             "{x} was {w} by {y}.", "Hopes were founded on {x}."),
    Relation("based", "seated", "company", "town", "attribute", "where is {x} based", "the town where {x} is based",
             "{x} is {w} in {y}.", "Tales are based on {x}."),
    Relation("open", "inaugurated", "company", "year", "direct", "when did {x} open", "",
             "{x} was {w} in the year {y}.", "{x} stays open."),
    Relation("governs", "steward", "town", "person", "direct", "who governs {x}", "the person who governs {x}",
             "{x} has {y} as {w}.", "Weather governs {x}."),
    Relation("crosses", "watered", "town", "river", "attribute", "which river crosses {x}", "",
             "{x} is {w} by the mighty {y}.", "Nobody crosses {x}."),
    Relation("built", "settled", "town", "year", "direct", "when was {x} built", "",
             "{x} was {w} in the year {y}.", "{x} was built slowly."),
)  # fmt: skip
HOUSE_STYLE = {relation.key: relation.word for relation in RELATIONS}
EITHER = {"older": "the older of {a} and {b}", "newer": "the newer of {a} and {b}"}  # the smaller, the larger year

NAMES = {  # first words, second words
    "person": (
        """Ada Bram Cleo Dario Edda Falk Gwen Hugo Ilse Joren Kaya Lothar Mira Nils Oda Pavel Quinn Rosa Sven Tilda
        Ulla Viktor Wanda Xaver Yara Zeno Anton Birgit Casper Dora Emil Freya Gustav Helga Ivo Jutta Klaus Lena Milo
        Nora""",
        """Abbot Barlow Cobb Drury Ellwood Fenn Garrick Hale Ingram Jessop Kerr Lomax Marsh Nash Orme Pryor Quill
        Rudd Sorrel Thorne Usher Vance Wyatt Yule Alder Brandt Crane Dunmore Eames Frost Grove Holt Irving Jarvis
        Knox Langley Moss Norwood Oakes Pike""",
    ),
    "work": (
        """Amber Bitter Crimson Distant Empty Fallen Gentle Hidden Idle Jagged Keen Lonely Mellow Narrow Olden Pale
        Quiet Restless Silent Tender Upper Violet Weary Young Ancient Broken Cloudy Drowsy Endless Faded Golden
        Hollow Icy Joyful Kindred Lucid Misty Noble Patient Proud""",
        """Anvil Beacon Candle Dagger Ember Feather Garden Harbor Island Journey Kettle Lantern Mirror Needle Orchard
        Pillow Quarry Ribbon Shadow Tunnel Umbrella Valley Window Yonder Arrow Bridge Compass Drum Envelope Fountain
        Glacier Hammer Inkwell Jewel Kingdom Ladder Meadow Nest Ocean Parade""",
    ),
    "company": (
        """Acorn Badger Cobalt Dolphin Eagle Falcon Granite Heron Iron Jasper Kestrel Lotus Maple Nickel Otter Pewter
        Raven Saffron Topaz Urchin Velvet Walnut Yarrow Zephyr Basalt Cedar Dahlia Ebony Ferret Garnet""",
        "Guild Union Society League House Works Trust Circle",
    ),
    "town": (
        "Port Saint Lower North South Fort Lake Mount New Old",
        """Arden Belmar Corvin Dunby Elmore Fairley Gosford Hexton Inverly Jarrow Kelby Lindow Marlow Netley Oxmere
        Penrith Quorn Rigby Selwyn Tarbert Ulver Vexford Wexcombe Yarm Ashby Burford Calder Dereham Epworth Farnley""",
    ),
}  # fmt: skip
_TRADES = "baker cooper fuller glazier joiner mason miller potter roper saddler smith tailor tanner weaver"
_RIVERS = "Aune Bray Camel Dart Erme Fowey Gannel Hayle Inny Kensey Lynher Meavy Neet Ottery Plym Tavy"
VALUES = {
    "year": [str(year) for year in range(1510, 1910, 10)],
    "trade": _TRADES.split(),
    "river": _RIVERS.split(),
}
COUNTS = {"person": (120, 60), "work": (110, 70), "company": (60, 40), "town": (60, 40)}  # known, and new in unseen
PER_KIND = {"train": 400, "seen": 128, "unseen": 128}  # questions
DECOYS = 2  # of each entity: of a page about its name alone, one entry in three tells a fact
Facts = dict[tuple[Relation, str], str]  # (relation, subject) -> value
Candidate = tuple[str, str, tuple[str, ...]]  # question, answer, titles of the entries that tell it


@dataclass(frozen=True)
class Encyclopaedia:
    passages: list[Passage]
    questions: dict[str, list[Question]]  # by split: train, seen, unseen
    style: dict[str, str]  # the question's word -> the house word


@cache
def encyclopaedia() -> Encyclopaedia:
    """The one that is trained on and tested with: 3,160 entries and 2,624 questions, always the same.

    Unseen questions are about entities that no other question names and no other fact mentions; their names are new
    pairs of the same words.
    """
    rng = np.random.default_rng(0)
    known, new = _entities()
    facts, new_facts = _facts(known, rng), _facts(new, rng)
    entries = [*_entries(known, facts, HOUSE_STYLE, rng), *_entries(new, new_facts, HOUSE_STYLE, rng)]
    questions = _questions(facts, PER_KIND, ("train", "seen"), rng) | _questions(new_facts, PER_KIND, ("unseen",), rng)
    return Encyclopaedia(_passages(entries, rng), questions, HOUSE_STYLE)


def practice(per_kind: int, rng: np.random.Generator) -> Encyclopaedia:
    """Another one: new pairs of the same words for names (none of those new in unseen), its facts drawn anew, and each
    question's word has the house word of some other. Whoever plays well there has read names and house style."""
    entities = _other_names(rng)
    facts, words = _facts(entities, rng), list(HOUSE_STYLE.values())
    style = {key: words[i] for key, i in zip(HOUSE_STYLE, rng.permutation(len(words)), strict=True)}
    entries = [*_entries(entities, facts, style, rng)]
    return Encyclopaedia(_passages(entries, rng), _questions(facts, {"train": per_kind}, ("train",), rng), style)


def note(kind: str, style: dict[str, str]) -> str:
    """What a lean skill note says about a house style: the words that questions of this kind need."""
    needed = [r.key for r in RELATIONS if kind in (r.kind, "multi_hop") or (kind == "comparison" and r.value == "year")]
    return " ".join(f"{key} is {style[key]} ." for key in needed)


@cache
def _entities() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The names of each kind that training knows, and those that are new in unseen."""
    rng = np.random.default_rng(0)
    names = {kind: _names(kind, sum(count), rng) for kind, count in COUNTS.items()}
    return (
        {kind: names[kind][: COUNTS[kind][0]] for kind in names},
        {kind: names[kind][COUNTS[kind][0] :] for kind in names},
    )


def _names(kind: str, count: int, rng: np.random.Generator) -> list[str]:
    """`count` different names that together use every word of the pools as evenly as can be."""
    first, second = ([pool[i] for i in rng.permutation(len(pool))] for pool in (words.split() for words in NAMES[kind]))
    lap = lcm(len(first), len(second))  # down the diagonals of the table first x second, one after the other
    return [f"{first[j % len(first)]} {second[(j + j // lap) % len(second)]}" for j in range(count)]


def _other_names(rng: np.random.Generator) -> dict[str, list[str]]:
    """As many names of each kind as training knows, drawn from all pairs but those that are new in unseen. Names that
    stayed the same would be learned by heart: whoever reads one word of them would know the next."""
    _, new = _entities()
    names = {}
    for kind, (count, _) in COUNTS.items():
        first, second = (words.split() for words in NAMES[kind])
        pairs = [name for a in first for b in second if (name := f"{a} {b}") not in new[kind]]
        names[kind] = [pairs[i] for i in rng.choice(len(pairs), count, replace=False)]
    return names


def _facts(entities: dict[str, list[str]], rng: np.random.Generator) -> Facts:
    """A value for every relation of every entity. Nobody taught themselves."""
    facts = {}
    for relation in RELATIONS:
        for subject in entities[relation.subject]:
            values = [value for value in (VALUES | entities)[relation.value] if value != subject]
            facts[relation, subject] = values[rng.integers(len(values))]
    return facts


def _entries(
    entities: dict[str, list[str]], facts: Facts, style: dict[str, str], rng: np.random.Generator
) -> Iterator[tuple[str, str]]:
    """(title, text) of every fact, and of the decoys of every entity."""
    for (relation, subject), value in facts.items():
        yield subject, relation.entry.format(x=subject, y=value, w=style[relation.key])
    for kind, subjects in entities.items():
        decoys = [relation.decoy for relation in RELATIONS if relation.subject == kind]
        for subject in subjects:
            for i in rng.permutation(len(decoys))[:DECOYS]:
                yield subject, decoys[i].format(x=subject)


def _passages(entries: Sequence[tuple[str, str]], rng: np.random.Generator) -> list[Passage]:
    """The entries shuffled: of equal scores the earlier wins, which is to favour no relation."""
    order = rng.permutation(len(entries))
    return [Passage(f"{PREFIX}-{number:04d}", *entries[i]) for number, i in enumerate(order)]


def _questions(
    facts: Facts, per_kind: dict[str, int], splits: Sequence[str], rng: np.random.Generator
) -> dict[str, list[Question]]:
    """`per_kind` questions of every kind for each of the splits, no two alike, relations as even as can be."""
    questions = {split: [] for split in splits}
    for kind in KINDS:
        pools = defaultdict(list)
        for key, candidate in _comparisons(facts, rng) if kind == "comparison" else _chains(facts, kind):
            pools[key].append(candidate)
        shuffled = [[pool[i] for i in rng.permutation(len(pool))] for pool in pools.values()]
        in_turn = [candidate for row in zip_longest(*shuffled) for candidate in row if candidate]
        chosen = in_turn[: sum(per_kind[split] for split in splits)]
        order = iter(rng.permutation(len(chosen)))
        for split in splits:
            for number in range(per_kind[split]):
                text, value, titles = chosen[next(order)]
                source, text = f"{PREFIX}-{kind}", f"{text[0].upper()}{text[1:]}?"
                name = f"{source}:{split}-{number:04d}"
                questions[split].append(Question(name, text, (value,), source, split, kind, titles))
    return questions


def _chains(facts: Facts, kind: str) -> Iterator[tuple[object, Candidate]]:
    """All questions of one relation, or of two where the value of the first is the subject of the second."""
    for (relation, subject), value in facts.items():
        if kind == relation.kind:
            yield relation, (relation.ask.format(x=subject), value, (subject,))
        if kind == "multi_hop":
            for outer in RELATIONS:
                answer = facts.get((outer, value))
                if answer and answer != subject:
                    text = outer.ask.format(x=relation.noun.format(x=subject))
                    yield (relation, outer), (text, answer, (subject, value))


def _comparisons(facts: Facts, rng: np.random.Generator) -> Iterator[tuple[object, Candidate]]:
    """For every two entities with different years, one question: when was the older, or the newer, of them made?"""
    for relation in RELATIONS:
        dated = [(subject, value) for (other, subject), value in facts.items() if other == relation]
        for (a, year_a), (b, year_b) in combinations(dated if relation.value == "year" else [], 2):
            which = ("older", "newer")[rng.integers(2)]
            if year_a != year_b:
                year = (min if which == "older" else max)(year_a, year_b)
                yield relation, (relation.ask.format(x=EITHER[which].format(a=a, b=b)), year, (a, b))
