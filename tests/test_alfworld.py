"""ALFWorld's domain: the generated world, scripted players, prompts, the Env, and the skill notes beside it."""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.alfworld import AlfworldEnv, make_domain, rooms
from envs.alfworld.engine import Goal, Play
from envs.alfworld.players import KINDS, STYLE, make_player, search_order
from envs.alfworld.prompts import brief
from envs.alfworld.rooms import HOMES, LAMPS, ROOMS, Home
from envs.alfworld.sight import read_goal, read_view
from envs.base import SPLITS, View, panel_hash, parse_action
from rollout import play
from tests.conftest import ROOT

DOMAIN = make_domain()
TASKS = {split: DOMAIN.tasks(split) for split in SPLITS}
LEAN = ROOT / "skills" / "alfworld" / "lean"


# ------------------------------------------------------------------------------------------------------ the world


def test_the_panels_are_frozen():
    """A change of the world changes these, and makes a shipped policy and every logged number out of date."""
    assert {split: panel_hash(tasks) for split, tasks in TASKS.items()} == {
        "train": "dada39a1a0be19d2",
        "seen": "06e4cc91dcb28c12",
        "unseen": "fadefd7911065dfc",
    }


def test_splits_are_disjoint_and_rooms_as_promised():
    assert {split: len(tasks) for split, tasks in TASKS.items()} == {"train": 600, "seen": 256, "unseen": 512}
    digests = [task.digest for tasks in TASKS.values() for task in tasks]
    assert len(set(digests)) == len(digests)
    rooms_of = {split: {task.id.split("/")[1].split("-")[-1] for task in tasks} for split, tasks in TASKS.items()}
    assert rooms_of["seen"] <= rooms_of["train"] and not rooms_of["unseen"] & rooms_of["train"]
    drawn = rooms.rooms()
    designs = [(room.receptacles, room.clutter) for split in ("train", "unseen") for room in drawn[split]]
    assert len(set(designs)) == len(designs) == 2 * 4 * rooms.ROOMS_A_KIND


def test_a_game_drawn_twice_is_drawn_again(monkeypatch):
    """It hardly ever happens; with digests of three digits it does."""
    digest = rooms._digest
    monkeypatch.setattr(rooms, "_digest", lambda game: digest(game)[:3])
    train, seen = ({task.digest for task in rooms.generate(split)} for split in ("train", "seen"))
    assert len(train) == 600 and len(seen) == 256 and not train & seen


def test_another_seed_is_another_world():
    assert panel_hash(rooms.generate("seen", seed=1)) != panel_hash(TASKS["seen"])
    with pytest.raises(ValueError, match="unknown split 'test'"):
        DOMAIN.tasks("test")


@pytest.mark.parametrize("split", SPLITS)
def test_games_are_as_designed(split):
    types = Counter(task.type for task in TASKS[split])
    assert set(types) == set(rooms.TYPES) and max(types.values()) - min(types.values()) <= 1
    for task in TASKS[split]:
        game = task.payload
        assert read_goal(task.goal) == game.goal and task.topic == game.goal.kind
        assert not Play(game).won
        assert len(game.receptacles) in (9, 10) and sum(r.openable for r in game.receptacles) <= 4
        assert len({r.place for r in game.receptacles} | {game.start}) == len(game.receptacles) + 1
        assert max(map(len, game.inside)) <= rooms.CROWD
        assert sum(thing.kind == game.goal.kind for thing in game.things) >= game.goal.count
        names = [thing.name for thing in (*game.receptacles, *game.things)]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("split", SPLITS)
def test_objects_are_at_home_as_often_as_the_table_says(split):
    where = Counter()
    for task in TASKS[split]:
        game = task.payload
        for r, inside in zip(game.receptacles, game.inside, strict=True):
            for thing in (game.things[o] for o in inside):
                if thing.kind in HOMES and thing.kind != game.goal.kind:  # the wanted one is never at the target
                    home = HOMES[thing.kind]
                    where["first" if r.kind == home.first else "second" if r.kind == home.second else "else"] += 1
    total = sum(where.values())
    assert abs(where["first"] / total - (0.80 + 0.05 / 9)) < 0.03  # anywhere may be home by chance
    assert abs(where["second"] / total - (0.15 + 0.05 / 9)) < 0.03


def test_two_of_a_kind_mostly_lie_together():
    games = [task.payload for tasks in TASKS.values() for task in tasks if task.payload.goal.count == 2]
    spots = [[r for r, inside in enumerate(g.inside) for o in inside if g.things[o].kind == g.goal.kind] for g in games]
    assert 0.9 < np.mean([len(set(pair)) == 1 for pair in spots]) < 0.99  # 0.9, and chance


def test_the_table_makes_sense():
    for kind in ROOMS.values():
        homes = [*kind.homes.values(), *([LAMPS[kind.lamp]] if kind.lamp else [])]
        for home in homes:
            assert {home.first, home.second} <= set(kind.receptacles) and home.first != home.second
        assert set(kind.targets) <= set(kind.receptacles) - rooms.OPENABLE
        assert not set(kind.homes) & set(kind.clutter)
    assert len(HOMES) == 23  # no object lives in two kinds of room


def test_practice_games_have_their_own_homes():
    drawn = DOMAIN.practice(120, seed=3)
    assert [task.digest for task, _ in drawn] == [task.digest for task, _ in DOMAIN.practice(120, seed=3)]
    assert not {task.digest for task, _ in drawn} & {task.digest for tasks in TASKS.values() for task in tasks}
    told = [note == rooms.note(task.topic) for task, note in drawn]
    assert np.mean(told) < 0.1  # what a note says in practice is seldom so in the world
    for task, note in drawn:
        home = task.payload.homes[task.topic]
        assert note == f"{task.topic} : usually in {home.first} , else in {home.second} ."
        assert {home.first, home.second} <= {r.kind for r in task.payload.game().receptacles}
    assert np.mean(_won(DOMAIN, "guided", [task for task, _ in drawn])) > 0.85


# ----------------------------------------------------------------------------------------------------- the players


def test_ceilings_and_floors():
    """The table that README prints: the world leaves room to learn, and a skill is worth having."""
    rates = {kind: np.mean(_won(DOMAIN, kind, TASKS["unseen"])) for kind in KINDS}
    assert rates["expert"] == 1 and rates["guided"] >= 0.93 and 0.20 <= rates["novice"] <= 0.30
    assert rates["novice"] < rates["random"] <= 0.45
    assert all(_won(DOMAIN, "expert", TASKS["train"] + TASKS["seen"]))


def _won(domain, kind: str, tasks: list) -> list[bool]:
    return [trajectory.won for trajectory in play(domain, tasks, kind, seed=0)]


def _turns(kind: str, tasks: list, seed: int = 5):
    """(view, response, env) of every turn of scripted play."""
    env = DOMAIN.make()
    for number, task in enumerate(tasks):
        player = make_player(kind, np.random.default_rng([seed, number]))
        observation, info = env.reset(options={"task": task})
        history, over = [], False
        while not over:
            view = View(task, len(history), tuple(history[-2:]), observation, info["admissible"])
            response = player(view, env)
            yield view, response, env
            seen = observation
            observation, _, ended, cut, info = env.step(response)
            history.append((seen, info["action"]))
            over = ended or cut


@pytest.mark.parametrize("kind", KINDS)
def test_responses_are_plain_words_and_admissible(kind):
    style = {phrase for phrases in STYLE.values() for phrase in phrases}
    said = set()
    for view, response, _ in _turns(kind, TASKS["unseen"][::4]):
        action, valid = parse_action(response)
        assert valid and action in view.admissible and action != "help"
        assert response == " ".join(response.lower().split())
        thought = response.split(" </think>")[0].removeprefix("<think> ")
        assert 7 <= len([word for word in thought.split() if word != "."]) <= 21
        said |= {phrase for phrase in style if phrase in thought}
        if kind in ("novice", "random"):
            assert "usually" not in thought and "may be" not in thought
    assert said == style


@pytest.mark.parametrize("kind", ["guided", "novice", "random"])
def test_only_the_expert_looks_behind_the_view(kind):
    for view, response, env in _turns(kind, TASKS["seen"][::8]):
        blind = View(view.task, view.turn, view.history, view.observation, view.admissible)
        again = [make_player(kind, np.random.default_rng(9))(blind, behind) for behind in (None, env)]
        assert again[0] == again[1] and response


def test_a_guided_turn_by_hand():
    goes = ("go to cabinet 1", "go to countertop 1", "go to fridge 1", "go to microwave 1")
    task = next(task for task in TASKS["train"] if task.goal == "put a hot mug in diningtable.")

    def says(observation: str, *local: str, away: tuple[str, ...] = goes, history: tuple = ()) -> str:
        view = View(task, 5, history, observation, (*local, *away))
        return make_player("guided", np.random.default_rng(0))(view, None)

    at_shelf, at_counter = "You arrive at shelf 1. On the shelf 1", "You arrive at countertop 1. On the countertop 1"
    cases = {
        says("-= Welcome", away=(*goes, "go to shelf 1")): r"mug is usually in shelf .*<action> go to shelf 1 <",
        says(f"{at_shelf}, you see nothing.", "examine shelf 1"): r"mug may be in countertop .*go to countertop 1 <",
        says(
            f"{at_counter}, you see nothing.", "examine countertop 1", away=("go to cabinet 1", "go to shelf 1")
        ): r"mug may be anywhere .*<action> go to cabinet 1 <",
        says(
            f"{at_shelf}, you see a plate 1, and a mug 2.", "examine shelf 1", "take mug 2 from shelf 1",
            "take plate 1 from shelf 1",
        ): r"mug 2 \. i take it \. </think> <action> take mug 2 from shelf 1 <",
        says(
            "You pick up the mug 2 from the shelf 1.", "examine mug 2", "examine shelf 1", "move mug 2 to shelf 1"
        ): r"i hold mug 2 \. it must be hot .*<action> go to microwave 1 <",
        says(
            "You arrive at diningtable 1. On the diningtable 1, you see nothing.", "examine diningtable 1",
            "examine mug 2", "move mug 2 to diningtable 1",
            history=(("You heat the mug 2 using the microwave 1.", "go to diningtable 1"),),
        ): r"it is hot \. it goes in diningtable .*<action> move mug 2 to diningtable 1 <",
        says("x", "examine plate 1", "examine shelf 1", "move plate 1 to shelf 1"): "plate 1 is wrong .*> move plate 1",
        says("The cabinet 1 is closed.", "examine cabinet 1", "open cabinet 1"): "cabinet 1 is closed .*> open cabinet",
    }  # fmt: skip
    for response, expected in cases.items():
        assert re.search(expected, response), (response, expected)


def test_the_second_of_two_is_sought_where_the_first_was():
    task = next(task for task in TASKS["train"] if task.goal.startswith("put two pillow in dresser"))
    put = "move pillow 2 to dresser 1"
    history = (("You pick up the pillow 2 from the desk 1.", "go to dresser 1"), ("You arrive at dresser 1.", put))
    commands = ("examine dresser 1", "go to bed 1", "go to desk 1", "take pillow 2 from dresser 1")
    view = View(task, 4, history, "You move the pillow 2 to the dresser 1.", commands)
    assert "<action> go to desk 1 <" in make_player("guided", np.random.default_rng(0))(view, None)
    assert DOMAIN.key_moves(view) == []  # what is delivered stays there
    forgotten = make_player("guided", np.random.default_rng(0))(replace(view, history=history[1:]), None)
    assert "<action> go to bed 1 <" in forgotten
    assert not any(phrase in forgotten for phrase in STYLE["none"])  # the target was no place to look


def test_what_must_be_treated_is_taken_from_the_target_too():
    task = next(task for task in TASKS["train"] if task.goal == "put a hot mug in diningtable.")
    view = View(task, 2, (), "x", ("examine diningtable 1", "take mug 1 from diningtable 1"))
    assert DOMAIN.key_moves(view) == ["take mug 1 from diningtable 1"]


def test_search_order():
    places, home = ("bed 1", "desk 1", "shelf 2", "shelf 10", "sofa 1"), Home("shelf", "desk")
    assert search_order(home, places) == ["shelf 2", "shelf 10", "desk 1"]
    assert search_order(home, places, at="shelf 2") == ["shelf 10", "desk 1"]
    assert search_order(home, places, at="desk 1") == search_order(home, places, at="sofa 1") == []
    assert search_order(None, places) == []


def test_key_moves_take_what_is_wanted():
    seen = 0
    for view, response, _ in _turns("guided", TASKS["unseen"][::5]):
        moves = DOMAIN.key_moves(view)
        seen += bool(moves)
        assert not moves or parse_action(response)[0] in moves
        assert all(move in view.admissible and f"take {view.task.topic} " in move for move in moves)
        assert not (moves and read_view(view).held)
    assert seen > 50


def test_an_unknown_player():
    with pytest.raises(ValueError, match="unknown player 'oracle'"):
        DOMAIN.player("oracle", np.random.default_rng(0))


@pytest.mark.parametrize(
    "sentence, goal",
    [
        ("put a mug in shelf.", Goal("mug", "shelf")),
        ("put some mug on shelf.", Goal("mug", "shelf")),
        ("put a clean mug in shelf.", Goal("mug", "shelf", "clean")),
        ("clean some mug and put it in shelf.", Goal("mug", "shelf", "clean")),
        ("put a hot mug in shelf.", Goal("mug", "shelf", "hot")),
        ("heat some mug and put it in shelf.", Goal("mug", "shelf", "hot")),
        ("put a cool mug in shelf.", Goal("mug", "shelf", "cool")),
        ("cool some mug and put it in shelf.", Goal("mug", "shelf", "cool")),
        ("put two mug in shelf.", Goal("mug", "shelf", count=2)),
        ("find two mug and put them in shelf.", Goal("mug", "shelf", count=2)),
        ("look at mug under the desklamp.", Goal("mug", lamp="desklamp")),
        ("examine the mug with the desklamp.", Goal("mug", lamp="desklamp")),
    ],
)
def test_twelve_sentences(sentence, goal):
    assert read_goal(sentence) == goal


def test_another_sentence():
    with pytest.raises(ValueError, match="not one of ALFWorld's task sentences: 'dance'"):
        read_goal("dance")


# ----------------------------------------------------------------------------------------------------- the prompts

VIEW = View(
    next(task for task in TASKS["train"] if task.goal == "put a hot mug in diningtable."),
    3,
    (
        ("You arrive at shelf 1. On the shelf 1, you see nothing.", "go to fridge 1"),
        ("You arrive at fridge 1. The fridge 1 is closed.", "open fridge 1"),
    ),
    "You open the fridge 1. The fridge 1 is open. In it, you see a mug 2, a mug 1, and a apple 1.",
    (
        *("close fridge 1", "examine fridge 1", "go to diningtable 1", "go to shelf 1", "go to shelf 2", "help"),
        *("take apple 1 from fridge 1", "take mug 1 from fridge 1", "take mug 2 from fridge 1"),
    ),
)


def test_the_lean_prompt_by_hand():
    assert DOMAIN.prompt(VIEW, lean=True) == (
        "task : put a hot mug in diningtable\n"
        "before : shelf 1 : nothing > go to fridge 1\n"
        "before : fridge 1 closed > open fridge 1\n"
        "now : fridge 1 : apple 1 , mug 1 , mug 2\n"
        "can : go to diningtable 1 , shelf 1 2 ; take apple 1 , mug 1 , mug 2 from fridge 1 ; close fridge 1 ; "
        "examine fridge 1"
    )


def test_the_full_prompt_by_hand():
    prompt = DOMAIN.prompt(VIEW, lean=False)
    parts = [
        "Your task is to: put a hot mug in diningtable.",
        "You have taken 3 step(s) so far.",
        "[Observation 2: 'You arrive at shelf 1. On the shelf 1, you see nothing.', Action 2: 'go to fridge 1']",
        "[Observation 3: 'You arrive at fridge 1. The fridge 1 is closed.', Action 3: 'open fridge 1']",
        "You are now at step 4 and see this: You open the fridge 1.",
        "['close fridge 1'\n 'examine fridge 1'\n",
        " 'take mug 2 from fridge 1'].",
        "<think> </think>",
        "<action> </action>",
    ]
    assert sorted(parts, key=prompt.index) == parts and "help" not in prompt
    first = DOMAIN.prompt(View(VIEW.task, 0, (), VIEW.task.payload.intro, VIEW.admissible), lean=False)
    assert VIEW.task.payload.intro in first and "step(s)" not in first and first.count("put a hot mug") == 1


def test_lean_prompts_are_short_and_in_vocabulary():
    known, used, lengths = set(DOMAIN.words()), set(), []
    assert DOMAIN.words() == sorted(known) and all(word == word.lower() for word in known)
    for kind in KINDS:
        for view, response, _ in _turns(kind, TASKS["unseen"][::2]):
            prompt = DOMAIN.prompt(view, lean=True)
            assert all(line == " ".join(line.split()) == line.lower() for line in prompt.split("\n"))
            lengths.append(len(prompt.split()))
            used.update(prompt.split(), response.split())
    for task, note in DOMAIN.practice(200, seed=1):
        used.update(note.split(), DOMAIN.prompt(View(task, 0, (), "x", ()), lean=True).split()[:-1])
    for file in (*LEAN.glob("*.md"),):
        used.update(file.read_text().split())
    used.update(" ".join(json.loads((LEAN / "skill_mapping.json").read_text())["topics"].values()).split())
    assert used <= known | {"x"}
    assert np.mean(lengths) <= 90 and max(lengths) <= 120


@pytest.mark.parametrize(
    "observation, short",
    [
        ("You pick up the mug 1 from the shelf 2.", "took mug 1 from shelf 2"),
        ("You move the mug 1 to the shelf 2.", "moved mug 1 to shelf 2"),
        ("You put the mug 1 in/on the shelf 2.", "moved mug 1 to shelf 2"),
        ("You arrive at loc 12. On the bed 1, you see a pillow 1.", "bed 1 : pillow 1"),
        ("You cool the mug 1 using the fridge 1.", "cool mug 1 with fridge 1 done"),
        ("You close the fridge 1.", "fridge 1 closed"),
        ("You turn on the desklamp 1.", "desklamp 1 on"),
        ("You are carrying: a mug 1.", "hold mug 1"),
        ("You are not carrying anything.", "hold nothing"),
        ("You are facing the shelf 2, and shelf 1. Next to it, you see nothing.", "at shelf 2 , and shelf 1"),
        ("This is a hot and clean mug 1.", "hot and clean mug 1"),
        ("There's nothing special about mug 1.", "normal mug 1"),
        ("Nothing happens.", "nothing happens ."),
        ("\ud800 Brand-new\n\ntext", "\ud800 brand - new text"),
    ],
)
def test_observations_in_brief(observation, short):
    assert brief(observation) == short


# --------------------------------------------------------------------------------------------------------- the Env


def test_an_episode_by_hand():
    task = next(task for task in TASKS["train"] if task.type == "pick_and_place_simple")
    env = AlfworldEnv(max_turns=3)
    observation, info = env.reset(seed=1, options={"task": task})
    assert observation == info["anchor"] == task.payload.intro and "help" in info["admissible"]
    go = info["admissible"][0]
    observation, reward, won, cut, info = env.step(f"<think>x</think><action>{go.upper()}</action>")
    assert observation.startswith("You arrive at") and (reward, won, cut) == (0, False, False)
    assert info | {"admissible": 0} == {
        **{"anchor": observation, "admissible": 0, "action": go, "valid": True, "won": False, "score": 0.0}
    }
    observation, reward, won, cut, info = env.step("<action>look</action>")  # no thought: invalid, played all the same
    assert observation.startswith("You are facing") and not info["valid"] and not cut
    observation, _, won, cut, info = env.step("I give up")
    assert observation == "Nothing happens." and (won, cut, info["action"]) == (False, True, "i give up")


def test_a_win_is_worth_ten_and_no_truncation():
    task = TASKS["train"][0]
    turns = list(_turns("expert", [task]))
    env = AlfworldEnv(max_turns=len(turns))
    env.reset(options={"task": task})
    results = [env.step(response)[1:4] for _, response, _ in turns]
    assert results == [(0, False, False)] * (len(turns) - 1) + [(10, True, False)]


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("<>/thinkaco \0\ud800好\n"), max_size=60) | st.text(max_size=50))
def test_no_response_raises(response):
    env = DOMAIN.make()
    env.reset(options={"task": TASKS["seen"][0]})
    observation, reward, _, _, info = env.step(response)
    assert isinstance(observation, str) and reward == 0 and isinstance(info["valid"], bool)


@pytest.mark.parametrize("response", ["<action>" * 10**5, "<think>" + "x" * 10**6, "</action><action>", "\0", ""])
def test_huge_and_broken_responses(response):
    env = DOMAIN.make()
    env.reset(options={"task": TASKS["seen"][0]})
    observation, _, _, _, info = env.step(response)
    assert observation == "Nothing happens." and not info["valid"]


def test_settings_of_the_domain(monkeypatch):
    assert (DOMAIN.source, DOMAIN.max_turns, make_domain(max_turns=5).make().max_turns) == ("generated", 10, 5)
    monkeypatch.setenv("ALFWORLD_DATA", "/no/such/folder")
    with pytest.raises(FileNotFoundError, match="/no/such/folder"):
        make_domain()
    with pytest.raises(ValueError, match="unknown backend 'unity'"):
        make_domain(data=ROOT, backend="unity")


# ------------------------------------------------------------------------------------------------------ the skills


def test_notes_agree_with_the_world():
    mapping = json.loads((LEAN / "skill_mapping.json").read_text())
    full = json.loads((LEAN.parent / "skill_mapping.json").read_text())
    wanted = {task.topic for tasks in TASKS.values() for task in tasks}
    assert mapping["topics"] == {kind: rooms.note(kind) for kind in HOMES if kind not in LAMPS}
    assert wanted <= set(mapping["topics"])
    assert set(mapping["task_to_skill"]) == set(full["task_to_skill"]) == set(rooms.TYPES)
    look = (LEAN / "look_at_obj_in_light.md").read_text()
    assert look.splitlines()[1:] == [rooms.note(lamp) for lamp in LAMPS]
    for file in mapping["skill_files"].values():
        recipe = (LEAN / file).read_text().splitlines()[0]
        assert len([word for word in recipe.split() if word.isalpha()]) <= 20
        assert not re.search(r"\d", (LEAN / file).read_text())  # never which one it is
    assert not re.search(r"\d", "".join(mapping["topics"].values()))


def test_full_skills_are_numbered_items():
    full = json.loads((LEAN.parent / "skill_mapping.json").read_text())
    for file, fewest, most in [("general_skills.md", 10, 12), *((f, 5, 8) for f in full["skill_files"].values())]:
        title, _, *items = (LEAN.parent / file).read_text().splitlines()
        assert title.startswith("# ") and fewest <= len(items) <= most
        for number, item in enumerate(items, start=1):
            assert re.fullmatch(rf"{number}\. [^:]+: .+\. Apply this when .+\.|{number}\. .+ Apply this at .+\.", item)


def test_nothing_privileged_under_envs():
    for file in sorted((ROOT / "envs").rglob("*.py")):
        code = re.sub(r'""".*?"""|#.*', "", file.read_text(), flags=re.DOTALL)
        assert "skills" not in re.sub(r"SKILLS", "", code), file


# ------------------------------------------------------------------------------------------------------ real games


@pytest.fixture(scope="module")
def real(shared):
    if not (shared / "alfworld").is_dir():
        pytest.skip(f"no {shared}/alfworld")
    return make_domain(shared / "alfworld")


def test_real_panels(real):
    assert (real.source.endswith("alfworld"), real.max_turns) == (True, 50)
    assert [len(real.tasks(split)) for split in SPLITS] == [3553, 140, 134]
    panel_hash(real.tasks("train"))
    task = real.tasks("unseen")[0]
    assert (task.id, task.topic) == (
        "unseen/look_at_obj_in_light-AlarmClock-None-DeskLamp-308/trial_T20190908_222917_366542",
        "alarmclock",
    )


def test_the_expert_wins_real_games(real):
    tasks = [*real.tasks("seen"), *real.tasks("unseen"), *real.tasks("train")[::12]]
    assert all(_won(real, "expert", tasks))


@pytest.mark.slow
def test_the_expert_wins_every_real_game(real):
    assert all(_won(real, "expert", real.tasks("train")))


@pytest.mark.parametrize("kind", ["guided", "random", "novice"])
def test_others_play_real_games_too(real, kind):
    assert np.mean(_won(real, kind, real.tasks("unseen")[::3])) > 0.5


def test_real_prompts(real):
    known, unknown, count = set(real.words()), Counter(), 0
    env = real.make()
    for task in real.tasks("unseen")[::3]:
        observation, info = env.reset(options={"task": task})
        for action in (*task.payload.game().walkthrough, "look"):
            words = real.prompt(View(task, 0, (), observation, info["admissible"]), lean=True).split()
            unknown.update(set(words) - known)
            count += len(words)
            observation, *_, info = env.step(f"<action>{action}</action>")
    assert not unknown and count
