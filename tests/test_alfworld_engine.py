"""The engine and the reader of real games: against walkthroughs, transcripts, a brute-force twin, and bad files."""

import json
import lzma
import re
import time
import tracemalloc
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from envs.alfworld import make_domain
from envs.alfworld.engine import CLASSIC, HELP, Game, Goal, Play, Receptacle, Thing
from envs.alfworld.games import _load, find, parse, wording_of

GRAMMAR = """grammar :: {"task": [{"rhs": "Your task is to: %s"}],
"GotoLocation.feedback": [{"rhs": "You arrive at {r.name}. #examineReceptacle.feedback#"}],
"PutObject.feedback": [{"rhs": "You move the {o.name} to the {r.name}."}]}
action PutObject {
    template :: "move {o} to {r}";
}
action help {
    template :: "help";
}"""
OLD = (
    GRAMMAR.replace("{r.name}. #", "{lend.name}. #")
    .replace("move {o} to {r}", "put {o} in/on {r}")
    .replace("You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}.")
    .split("action help")[0]
)
PROBLEM = """(define (problem p) (:domain alfred) (:objects
    agent1 - agent
    Mug - object
    MugType - otype
    Mug_bar__plus_01 - object
    Mug_bar__plus_02 - object
    Spoon_bar__plus_01 - object
    Apple_bar__plus_01 - object
    Knife_bar__plus_01 - object
    Fridge_bar__plus_01 - receptacle
    Sink_bar__plus_01_bar_SinkBasin - receptacle
    Shelf_bar__plus_01 - receptacle
    Shelf_bar__plus_02 - receptacle
    loc_bar_1 - location
    loc_bar_2 - location
    loc_bar_3 - location
) (:init
    (receptacleType Fridge_bar__plus_01 FridgeType) (openable Fridge_bar__plus_01)
    (receptacleType Sink_bar__plus_01_bar_SinkBasin SinkBasinType)
    (receptacleType Shelf_bar__plus_01 ShelfType) (receptacleType Shelf_bar__plus_02 ShelfType)
    (canContain FridgeType MugType) (canContain ShelfType MugType) (canContain ShelfType KnifeType)
    (objectType Mug_bar__plus_01 MugType) (objectType Mug_bar__plus_02 MugType)
    (objectType Apple_bar__plus_01 AppleType) (objectType Knife_bar__plus_01 KnifeType)
    (pickupable Mug_bar__plus_01) (pickupable Mug_bar__plus_02) (pickupable Knife_bar__plus_01)
    (sliceable Apple_bar__plus_01) (cleanable Mug_bar__plus_01) (coolable Mug_bar__plus_01)
    (isReceptacleObject Mug_bar__plus_02) (inReceptacleObject Spoon_bar__plus_01 Mug_bar__plus_02)
    (inReceptacle Mug_bar__plus_01 Fridge_bar__plus_01) (objectAtLocation Mug_bar__plus_01 loc_bar_1)
    (inReceptacle Mug_bar__plus_02 Shelf_bar__plus_02) (inReceptacle Knife_bar__plus_01 Shelf_bar__plus_02)
    (inReceptacle Apple_bar__plus_01 Shelf_bar__plus_01)
    (objectAtLocation Mug_bar__plus_02 loc_bar_2) (objectAtLocation Knife_bar__plus_01 loc_bar_2)
    (objectAtLocation Apple_bar__plus_01 loc_bar_2)
    (receptacleAtLocation Fridge_bar__plus_01 loc_bar_1)
    (receptacleAtLocation Sink_bar__plus_01_bar_SinkBasin loc_bar_1)
    (receptacleAtLocation Shelf_bar__plus_01 loc_bar_2) (receptacleAtLocation Shelf_bar__plus_02 loc_bar_2)
    (atLocation agent1 loc_bar_3)
) (:goal (and (exists (?r - receptacle) (exists (?o - object) (and %s (objectType ?o MugType)
    (receptacleType ?r ShelfType) %s (inReceptacle ?o ?r) ))))))"""
CLEAN = PROBLEM % ("(cleanable ?o)", "(isClean ?o)")


@pytest.fixture
def game() -> Game:
    return parse(CLEAN, "put a clean mug in shelf.", wording_of(GRAMMAR))


def test_a_game_by_hand(game):
    play = Play(game)
    assert play.observation == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
        "a fridge 1, a shelf 2, a shelf 1, and a sinkbasin 1.\n\nYour task is to: put a clean mug in shelf."
    )
    assert play.admissible == (
        *("go to fridge 1", "go to shelf 1", "go to shelf 2", "go to sinkbasin 1", "help", "inventory", "look"),
    )
    script = [
        ("look", "You are in the middle of a room. Looking quickly around you, you see nothing."),
        ("inventory", "You are not carrying anything."),
        ("help", HELP),
        ("go to fridge 1", "You arrive at fridge 1. The fridge 1 is closed."),
        ("go to sinkbasin 1", "Nothing happens."),  # the same place
        ("take mug 2 from fridge 1", "Nothing happens."),  # closed
        ("open fridge 1", "You open the fridge 1. The fridge 1 is open. In it, you see a mug 2."),
        (" take mug 2 from fridge 1\n", "You pick up the mug 2 from the fridge 1."),
        ("Look", "Nothing happens."),
        ("look", "You are facing the fridge 1, and sinkbasin 1. Next to it, you see nothing."),
        ("inventory", "You are carrying: a mug 2."),
        ("examine mug 2", "There's nothing special about mug 2."),
        ("cool mug 2 with fridge 1", "You cool the mug 2 using the fridge 1."),
        ("examine mug 2", "This is a cold mug 2."),
        ("clean mug 2 with sinkbasin 1", "You clean the mug 2 using the sinkbasin 1."),
        ("examine mug 2", "This is a cool and clean mug 2."),
        ("move mug 2 to sinkbasin 1", "Nothing happens."),  # a basin holds no mug here
        ("close fridge 1", "You close the fridge 1."),
        ("go to shelf 1", "You arrive at shelf 1. On the shelf 1, you see a knife 1, and a mug 1."),
        ("examine shelf 2", "On the shelf 2, you see a apple 1."),
    ]
    for command, text in script:
        assert play.step(command) == (text, 0, False), command
    assert play.step("move mug 2 to shelf 2") == ("You move the mug 2 to the shelf 2.", 1, True)
    assert play.step("dance") == ("Nothing happens.", 1, True)
    assert play.step("take mug 1 from shelf 1")[1:] == (1, True)  # goes on; the goal still holds
    assert play.step("examine mug 1")[0] == "This is a normal mug 1. In it, you see a spoon 1."
    play.step("move mug 1 to shelf 2")
    assert play.step("look")[0] == "You are facing the shelf 2, and shelf 1. Next to it, you see a mug 1."
    for number in (1, 2):
        play.step(f"take mug 1 from shelf {3 - number}")
        play.step(f"move mug 1 to shelf {number}")
    assert play.step("look")[0].endswith("you see a mug 1.")  # gone from one of the two shelves, not from both
    play.step("take knife 1 from shelf 1")
    assert play.step("slice apple 1 with knife 1")[0] == "You sliced the apple 1 with the knife 1."
    play.step("move knife 1 to shelf 1")
    assert play.step("take mug 2 from shelf 2")[1:] == (0, False)  # the goal holds no longer


def test_old_texts(game):
    play = Play(parse(CLEAN, game.task, wording_of(OLD)))
    assert wording_of(OLD) == CLASSIC and "help" not in play.admissible
    assert play.step("go to shelf 1")[0].startswith("You arrive at loc 2. On the shelf 1")
    play.step("take mug 1 from shelf 1")
    assert play.step("put mug 1 in/on shelf 2")[0] == "You put the mug 1 in/on the shelf 2."


@pytest.mark.parametrize("state, able", [("", ""), ("Clean", "cleanable"), ("Hot", "heatable"), ("Cool", "coolable")])
def test_the_goal_decides(game, state, able):
    parts = (f"({able} ?o)", f"(is{state} ?o)") if state else ("", "")
    play = Play(parse(PROBLEM % parts, game.task, game.wording))
    for command in ("go to shelf 1", "take mug 1 from shelf 1", "move mug 1 to shelf 2"):
        won = play.step(command)[2]
    assert won == (state == "")


TWO = """(exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 MugType) (receptacleType ?r ShelfType)
    (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2)) (objectType ?o2 %sType)
    (receptacleType ?r ShelfType) (inReceptacle ?o2 ?r))))))"""
LAMP = """(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot DeskLampType)
    (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))
    (exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o))))"""


def test_formulas(game):
    def read(formula: str) -> Game:
        return parse(CLEAN.split("(:goal")[0] + f"(:goal {formula}))", game.task, game.wording)

    assert read(TWO % "Mug").goal == Goal("mug", "shelf", count=2)
    assert read(LAMP).goal == Goal("mug", lamp="desklamp")
    for other in (TWO % "Knife", LAMP.replace("isToggled", "isOn"), "(and)"):
        with pytest.raises(ValueError, match="a goal that ALFWorld does not have"):
            read(other)
    cool = parse(CLEAN.replace("(:init", "(:init (isCool Apple_bar__plus_01)"), game.task, game.wording)
    assert [cool.things[o].name for o in cool.cool] == ["apple 1"] and not game.cool


def test_cool_from_the_start_counts_if_it_can_be_cooled(game):
    apple, mug = (next(o for o, thing in enumerate(game.things) if thing.name == name) for name in ("apple 1", "mug 2"))
    assert not Play(replace(game, goal=Goal("apple", "shelf", "cool"), cool=frozenset({apple}))).won
    assert Play(replace(game, goal=Goal("mug", "fridge", "cool"), cool=frozenset({mug}))).won


def test_two_need_one_receptacle(game):
    two = Play(replace(game, goal=Goal("mug", "shelf", count=2)))
    commands = ["go to fridge 1", "open fridge 1", "take mug 2 from fridge 1", "go to shelf 1", "move mug 2 to shelf 2"]
    assert not any(two.step(command)[2] for command in commands)  # one on each shelf
    assert not two.step("take mug 2 from shelf 2")[2]
    assert two.step("move mug 2 to shelf 1")[2]


def test_a_lamp_must_be_lit_where_one_stands(game):
    lamp = Thing("desklamp 1", "desklamp", frozenset({"toggle"}), frozenset({1}))
    inside = tuple(things | {len(game.things)} if r == 1 else things for r, things in enumerate(game.inside))
    play = Play(replace(game, things=(*game.things, lamp), inside=inside, goal=Goal("mug", lamp="desklamp")))
    script = ["go to shelf 2", "use desklamp 1", "go to fridge 1", "open fridge 1", "take mug 2 from fridge 1"]
    assert not any(play.step(command)[2] for command in script)
    assert play.step("go to shelf 1")[2]
    assert not play.step("move mug 2 to shelf 1")[2]


def _all_commands(game: Game) -> list[str]:
    """Every sentence that could be a command, built from all names."""
    names = [thing.name for thing in (*game.receptacles, *game.things)]
    one = [f"{verb} {name}" for verb in ("go to", "open", "close", "examine", "use") for name in names]
    forms = ("take {} from {}", game.wording.put.replace("o}", "}").replace("r}", "}"), "clean {} with {}")
    forms += ("heat {} with {}", "cool {} with {}", "slice {} with {}")
    two = [form.format(a, b) for form, a, b in product(forms, names, names)]
    return ["look", "inventory", "help", *one, *two]


def _random_walk(game: Game, steps: int, seed: int) -> Play:
    play, rng = Play(game), np.random.default_rng(seed)
    for _ in range(steps):
        play.step(str(rng.choice(play.admissible)))
    return play


def test_admissible_is_exactly_what_does_something(game):
    generated = [task.payload for task in make_domain().tasks("train")[::200]]
    for number, each in enumerate([game, replace(game, wording=CLASSIC), *generated]):
        for seed in range(3):
            play = _random_walk(each, 12, seed)
            works = []
            for command in _all_commands(each):
                twin = _random_walk(each, 12, seed)
                if twin.step(command)[0] != "Nothing happens.":
                    works.append(command)
                else:
                    assert (twin.admissible, twin.won) == (play.admissible, play.won)
            assert play.admissible == tuple(sorted(works)), (number, seed)


def test_episodes_share_a_game_and_nothing_else(game):
    first, second = Play(game), Play(game)
    for command in ("go to shelf 1", "take mug 1 from shelf 1"):
        first.step(command)
    assert second.admissible == Play(game).admissible
    first.reset()
    assert (first.observation, first.admissible) == (second.observation, second.admissible)


@pytest.mark.parametrize("text", ["", "\0", "\ud800", "go to shelf 1\0", "x" * 10**6, "go to  shelf 1", "HELP"])
def test_any_text_is_a_command(game, text):
    assert Play(game).step(text)[0] == "Nothing happens."


# ---------------------------------------------------------------------------------------------------- reading games


def _file(folder, text, split="train", task="pick_clean_then_place_in_recep-Mug-None-Shelf-1", trial="trial_1"):
    file = folder / "json_2.1.1" / split / task / trial / "game.tw-pddl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text if isinstance(text, str) else json.dumps(text))
    return file


GAME = {"pddl_domain": "", "grammar": GRAMMAR % "clean a mug.", "pddl_problem": CLEAN, "walkthrough": ["look"]}


def test_a_folder_of_files(tmp_path):
    _file(tmp_path, GAME, trial="trial_2")
    _file(tmp_path, GAME | {"solvable": False}, trial="trial_3")
    _file(tmp_path, GAME, task="pick_and_place_simple-AppleSliced-None-Shelf-1")
    _file(tmp_path, GAME | {"grammar": OLD % "clean a mug."})
    splits = find(tmp_path)
    assert [entry.trial for entry in splits["train"]] == ["trial_1", "trial_2"] and list(splits) == ["train"]
    entry = splits["train"][0]
    assert (entry.type, entry.topic, entry.goal) == ("pick_clean_then_place_in_recep", "mug", "clean a mug.")
    assert [entry.game().wording.help for entry in splits["train"]] == [False, True]
    assert find(tmp_path / "json_2.1.1") == splits


def test_a_packed_corpus_is_the_same_games(tmp_path):
    _file(tmp_path, GAME)
    head = {"pddl_domain": "", "grammar": GRAMMAR % "UNKNOWN GOAL."}
    line = {"split": "train", "task": "pick_clean_then_place_in_recep-Mug-None-Shelf-1", "trial": "trial_1"}
    line |= {"goal": "clean a mug.", "walkthrough": ["look"], "pddl_problem": CLEAN}
    with lzma.open(tmp_path / "all.jsonl.xz", "wt") as packed:
        packed.write(json.dumps(head) + "\n" + json.dumps(line) + "\n")
    from_file = find(tmp_path)["train"][0]
    for where in (tmp_path / "all.jsonl.xz",):
        assert find(where)["train"][0].game() == from_file.game()


def test_bad_data_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        make_domain(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="neither"):
        make_domain(tmp_path)
    file = _file(tmp_path, json.dumps(GAME)[:-40])
    with pytest.raises(ValueError, match=re.escape(str(file))):
        find(tmp_path)
    _file(tmp_path, {"grammar": GRAMMAR % "x"})
    with pytest.raises(ValueError, match="no 'pddl_problem'"):
        find(tmp_path)["train"][0].game()
    _file(tmp_path, GAME | {"grammar": GRAMMAR.replace("move {o} to {r}", "drop {o} at {r}") % "x"})
    with pytest.raises(ValueError, match=r"trial_1.*unknown grammar"):
        find(tmp_path)["train"][0].game()
    _file(tmp_path, GAME | {"pddl_problem": CLEAN.replace("isClean", "isSliced")})
    with pytest.raises(ValueError, match="a goal that ALFWorld does not have"):
        find(tmp_path)["train"][0].game()
    _file(tmp_path, GAME | {"pddl_problem": CLEAN.replace("(inReceptacle Mug_bar", "(inReceptacle Cup_bar")})
    with pytest.raises(ValueError, match="cup_bar"):
        find(tmp_path)["train"][0].game()
    _file(tmp_path, GAME | {"pddl_problem": CLEAN.replace("(atLocation agent1", "(was agent1")})
    with pytest.raises(ValueError, match="trial_1"):
        find(tmp_path)["train"][0].game()
    _file(tmp_path, GAME)
    with pytest.raises(FileNotFoundError, match="valid_seen"):
        make_domain(tmp_path).tasks("seen")
    (tmp_path / "bad.jsonl.xz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"bad\.jsonl\.xz"):
        find(tmp_path / "bad.jsonl.xz")


# ---------------------------------------------------------------------------------------------------- real games


@pytest.fixture(scope="module")
def corpus(shared):
    file = shared / "alfworld" / "alfworld_all_4027.jsonl.xz"
    if not file.is_file():
        pytest.skip(f"no {file}")
    return find(file)


def test_every_walkthrough_wins_on_its_last_step(corpus):
    assert {split: len(entries) for split, entries in corpus.items()} == {
        **{"train": 3553, "valid_seen": 140, "valid_unseen": 134, "valid_train": 200}
    }
    for entry in (entry for entries in corpus.values() for entry in entries):
        game = _load.__wrapped__(entry)  # not through the cache
        play = Play(game)
        for number, command in enumerate(game.walkthrough, start=1):
            assert command in play.admissible, (entry.task, entry.trial, command)
            assert play.step(command)[1:] == (int(number == len(game.walkthrough)),) * 2, (entry.task, entry.trial)


TURN = re.compile(r"> (.*)\n((?:.|\n)*?)\n\[(\d+) admissible, go-to's omitted\] (.*)\nreward (\d) done (\w+)")


def _transcripts(file):
    """(path, introduction, admissible at the start, turns) of each episode in a transcript file."""
    for text in re.split(r"^=+\n", file.read_text(), flags=re.MULTILINE)[1:]:
        path, rest = text.split("\n", 1)
        intro, count, commands = re.match(r"((?:.|\n)*?)\n\[(\d+) admissible\] (.*)\n", rest).groups()
        assert len(commands.split("; ")) == int(count)
        yield path, intro, tuple(commands.split("; ")), TURN.findall(rest)


def _replay(play: Play, intro, start, turns):
    assert (play.observation, play.admissible) == (intro, start)
    assert turns
    for command, text, count, others, reward, done in turns:
        assert play.step(command) == (text, int(reward), done == "True")
        assert len(play.admissible) == int(count)
        assert "; ".join(a for a in play.admissible if not a.startswith("go to ")) == others


def test_real_transcripts(corpus, shared):
    entries = {(split, entry.task, entry.trial): entry for split in corpus for entry in corpus[split]}
    episodes = list(_transcripts(shared / "alfworld" / "transcripts" / "real_unseen.txt"))
    for path, *episode in episodes:
        _replay(Play(entries[tuple(path.split("/")[1:4])].game()), *episode)
    assert len(episodes) == 6


def _game_behind(intro: str, turns: list, goal: Goal) -> Game:
    """A game that shows what a transcript shows: contents at the first sight, abilities as the commands tell them."""
    names = re.findall(r"a (\w+ \d+)", intro.split("you see ")[1].split("\n")[0])
    commands = {c for turn in turns for c in turn[3].split("; ")}
    place, inside, moved = {name: i for i, name in enumerate(names)}, {}, set()
    for command, text, _, others, *_ in turns:
        together = [n for n in re.findall(r"examine (\w+ \d+)", others) if n in place]
        for name in together:
            place[name] = place[together[0]]
        if seen := re.search(r"(?:On the|The) (\w+ \d+)(?: is open\. In it)?, you see (.*)\.", text):
            inside.setdefault(seen[1], [n for n in re.findall(r"a (\w+ \d+)", seen[2]) if n not in moved])
        moved.update(re.findall(r"^take (\w+ \d+)", command))
    things = sorted({n for held in inside.values() for n in held}, key=lambda n: (n.split()[0], -int(n.split()[1])))
    verbs = {"clean": "clean", "heat": "heat", "cool": "cool", "use": "toggle", "take": "pickup"}
    can = {n: {can for verb, can in verbs.items() if any(f"{c} ".startswith(f"{verb} {n} ") for c in commands)}
           for n in things}  # fmt: skip
    kind = str.split
    receptacles = tuple(
        Receptacle(n, kind(n)[0], place[n], f"open {n}" in commands,
                   frozenset(kind(c)[1] for c in commands if c.startswith("move ") and c.endswith(f" to {n}")))
        for n in names
    )  # fmt: skip
    return Game(
        intro.split("to: ")[1], goal, receptacles,
        tuple(Thing(n, kind(n)[0], frozenset(can[n]), frozenset()) for n in things),
        tuple(frozenset(things.index(o) for o in inside.get(n, [])) for n in names), start=-1,
    )  # fmt: skip


def test_generated_transcripts(shared):
    """These games' files are not at hand: they are rebuilt from the transcripts, without any PDDL."""
    goals = {
        "pick_and_place_simple": {}, "look_at_obj_in_light": {}, "pick_two_obj_and_place": {"count": 2},
        "pick_clean_then_place_in_recep": {"state": "clean"}, "pick_heat_then_place_in_recep": {"state": "hot"},
        "pick_cool_then_place_in_recep": {"state": "cool"},
    }  # fmt: skip
    file = shared / "alfworld" / "transcripts" / "generated.txt"
    if not file.is_file():
        pytest.skip(f"no {file}")
    episodes = list(_transcripts(file))
    for path, intro, start, turns in episodes:
        task_type, kind, _, target = path.split("/")[1].lower().split("-")[:4]
        where = {"lamp": target} if "look" in task_type else {"target": target}
        _replay(Play(_game_behind(intro, turns, Goal(kind, **where, **goals[task_type]))), intro, start, turns)
    assert {path.split("/")[1].split("-")[0] for path, *_ in episodes} == set(goals)


def test_speed_and_size(corpus):
    entries = corpus["train"][::27][:128]
    tracemalloc.start()
    plays = [Play(_load.__wrapped__(entry)) for entry in entries]
    [play.admissible for play in plays]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(plays) == 128 and size < 200e6
    rng, begun = np.random.default_rng(0), time.process_time()
    for play in plays:
        for _ in range(20):
            play.step(play.admissible[int(rng.integers(len(play.admissible)))])
    assert 128 * 20 / (time.process_time() - begun) > 5000
