"""WebShop's own worlds: the generated catalogue's statistics, the mini shop's facts, players, prompts and skills."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import envs
from envs.base import SPLITS, Task, View, panel_hash, stratified
from envs.webshop import generate, mini
from envs.webshop.goals import draw_stock
from envs.webshop.mini import KINDS, PROOFS, TOPICS, Fact, note
from envs.webshop.mini_players import Turn
from envs.webshop.reading import read_goal
from envs.webshop.reward import attribute_hits, reward
from envs.webshop.splits import CANONICAL_SEED, TYPES
from envs.webshop.survey import REAL, calibration, statistics

ROOT = Path(__file__).parent.parent
SKILLS = ROOT / "skills" / "webshop"


@pytest.fixture(scope="module")
def small():
    return envs.load("webshop", lean=True)


@pytest.fixture(scope="module")
def shop():
    return envs.load("webshop")


def play(domain, kind: str, tasks: list[Task], seed: int = 0, noise: float = 0.0) -> list[dict]:
    """Each task once: its last info with `task` and every `turns` (view, prompt, response)."""
    env, results = domain.make(), []
    for number, task in enumerate(tasks):
        rng = np.random.default_rng([seed, number])
        player, history, turns = domain.player(kind, rng), [], []
        observation, info = env.reset(options={"task": task})
        over = False
        while not over:
            view = View(task, len(history), tuple(history[-domain.history :]), observation, info["admissible"])
            text = player(view, env)
            turns.append((view, domain.prompt(view, True), text))
            if rng.random() < noise:
                text = f"<think> </think> <action> {rng.choice(view.admissible)} </action>"
            last = observation
            observation, _, done, cut, info = env.step(text)
            history.append((last, info["action"]))
            over = done or cut
        results.append(info | {"task": task, "turns": turns})
    return results


def success(results: list[dict]) -> float:
    return sum(info["won"] for info in results) / len(results)


# --------------------------------------------------------------------------------------------------------- generated


@pytest.fixture(scope="module")
def measured(shop):
    stock = draw_stock(shop.catalogue, CANONICAL_SEED)
    return statistics(list(shop.catalogue), stock.goals) | calibration(shop.catalogue, stock, sample=600)


# how far the generated catalogue may be from the real one, where a quarter is too little
WIDE = {"goals": 0.6, "target first": 0.3, "first hit, no options: success": 0.6, "random product: score": 0.6,
        "price cap, median": 0.5, "values a name, 90 %": 0.4, "category path empty": 0.5, "price, 10 %": 0.35,
        "goals with 3 options": 0.5}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in REAL if name != "oracle: success"])
def test_generated_statistics(measured, name):
    assert measured[name] == pytest.approx(REAL[name], rel=WIDE.get(name, 0.25))


def test_the_oracle_wins_every_generated_goal(measured):
    assert measured["oracle: success"] == 1.0


def test_survey_of_the_real_set(shared):
    """Our way of measuring gives the values of webshop.md 3 on the real products."""
    from envs.webshop.catalogue import read_raw

    catalogue = read_raw(shared / "webshop")
    found = statistics(list(catalogue), draw_stock(catalogue, CANONICAL_SEED).goals)
    off = {name for name, value in found.items() if value != pytest.approx(REAL[name], rel=0.1)}
    assert off <= {"price, median", "price cap, median"}


def test_generated_is_one_catalogue(shop):
    again = generate.build()
    assert again.digest == shop.catalogue.digest != generate.build(200, seed=1).digest
    assert len({product.asin for product in again}) == 1000
    assert all(len(product.asin) == 10 for product in again)


def test_distractors_share_all_but_one_attribute(shop):
    """A fifth of the products are twins of one that is asked for, and do not win its goals."""
    stock, products = draw_stock(shop.catalogue, CANONICAL_SEED, most=1), list(shop.catalogue)
    twins = 0
    for goal in stock.goals:
        own = products[goal.position]
        for i, other in enumerate(products):
            same = other.query == own.query and other.options == own.options and len(own.attributes) > 1
            if same and other is not own and len(set(own.attributes) - set(other.attributes)) == 1:
                twins += bool(own.options) or len(own.attributes) > 2
                if attribute_hits(other, goal) < len(goal.attributes):
                    assert reward(other, goal, stock.prices[i], goal.options, "fixed")[0] < 1.0
    assert twins > 120


def test_generated_splits(shop):
    tasks = {split: shop.tasks(split) for split in SPLITS}
    ids = [task.id for split in SPLITS for task in tasks[split]]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"[A-Za-z0-9._-]{1,100}", id) for id in ids)
    for group in tasks.values():
        assert group == sorted(group, key=lambda task: task.id)
        assert {task.type for task in group} == set(TYPES)
    assert len(tasks["unseen"]) >= 256
    held = {task.payload.goal.asin for task in tasks["unseen"]}
    assert not held & {task.payload.goal.asin for split in ("train", "seen") for task in tasks[split]}


def test_panels_are_frozen(shop, small):
    """Content, not the run, decides the panel; another mode plays differently and is another panel."""
    assert panel_hash(stratified(shop.tasks("unseen"), 128)) == panel_hash(
        stratified(envs.load("webshop").tasks("unseen"), 128)
    )
    assert panel_hash(shop.tasks("unseen")) == "c6531cde299b7448"
    assert panel_hash(small.tasks("unseen")) == "fba02a9540332229"
    other = envs.load("webshop", mode="parity").tasks("unseen")
    assert [task.id for task in other] == [task.id for task in shop.tasks("unseen")]
    assert panel_hash(other) != panel_hash(shop.tasks("unseen"))


# -------------------------------------------------------------------------------------------------------------- mini


def test_facts_decide(small):
    """Under the sellers' word the target is one of the first two hits, either equally often; under the others it is
    not on the page; and no other product wins."""
    catalogue, places = small.catalogue, [0, 0]
    stock = draw_stock(catalogue, CANONICAL_SEED, most=1)
    for goal in stock.goals:
        fact = catalogue.facts[goal.query]
        places[catalogue.index.search(f"{goal.attributes[0]} {fact.word}").index(goal.position)] += 1
        for word in TOPICS[goal.query].words:
            found = catalogue.index.search(f"{goal.attributes[0]} {word}")[: mini.PAGE_SIZE]
            assert (goal.position in found) == (word == fact.word)
        scores = [reward(one, goal, stock.prices[i], goal.options, "fixed")[0] for i, one in enumerate(catalogue)]
        assert [i for i, score in enumerate(scores) if score == 1.0] == [goal.position]
        product = catalogue[goal.position]
        proof = {"description": product.description, "features": " ".join(product.bullets)}
        other = next(page for page in PROOFS if page != fact.proof)
        assert goal.attributes[1] in proof[fact.proof] and goal.attributes[1] not in proof[other] + product.title
    assert min(places) == max(places) == 112


def test_facts_are_spread():
    facts = mini.build().facts
    assert sorted(fact.proof for fact in facts.values()).count("features") == 7
    places = [TOPICS[name].words.index(fact.word) for name, fact in facts.items()]
    assert sorted(places.count(place) for place in range(3)) == [4, 5, 5]


def test_every_topic_is_in_every_split(small):
    for split in SPLITS:
        assert {task.topic for task in small.tasks(split)} == set(TOPICS)
        assert all(TOPICS[task.topic].kind == task.type for task in small.tasks(split))
    assert len(small.tasks("unseen")) >= 256


@pytest.mark.parametrize(
    ("kind", "split", "low", "high"),
    [
        ("expert", "unseen", 1.0, 1.0), ("guided", "unseen", 1.0, 1.0), ("guided", "train", 1.0, 1.0),
        ("novice", "unseen", 0.2, 0.3), ("novice", "train", 0.2, 0.3), ("random", "unseen", 0.0, 0.05),
    ],
)  # fmt: skip
def test_mini_players(small, kind, split, low, high):
    assert low <= success(play(small, kind, small.tasks(split))) <= high


def test_guided_and_novice_know_only_the_view(small):
    """The same views and the same generator give the same responses, whatever the environment hides."""
    for kind in ("guided", "novice"):
        for info in play(small, kind, small.tasks("seen")[::20], seed=3):
            again = small.player(kind, np.random.default_rng(0))
            blind = small.player(kind, np.random.default_rng(0))
            for view, _, _ in info["turns"]:
                assert again(view, small.make()) == blind(view, None)


def test_guided_finds_its_way_back(small):
    """With a tenth of the turns random the guided player still wins most games, and never writes an unknown word."""
    words = set(small.words())
    results = play(small, "guided", small.tasks("unseen")[::2], noise=0.1)
    assert success(results) > 0.55
    for info in results:
        for _, prompt, text in info["turns"]:
            assert set(prompt.split()) <= words and set(_tokens(text)) <= words


def after(domain, task: Task, actions: list[str]) -> View:
    """What is seen after these actions."""
    env, history = domain.make(), []
    observation, info = env.reset(options={"task": task})
    for action in actions:
        last = observation
        observation, _, _, _, info = env.step(f"<think> </think> <action> {action} </action>")
        history.append((last, info["action"]))
    return View(task, len(history), tuple(history[-2:]), observation, info["admissible"])


def answer(domain, kind: str, view: View, seed: int = 0) -> str:
    return domain.player(kind, np.random.default_rng(seed))(view, None).split("<action> ")[1].removesuffix(" </action>")


def by_place(domain) -> dict[bool, tuple[Task, str, Fact]]:
    """A task with two option groups whose target is the first hit, and one whose target is the second; with the right
    search and the fact."""
    found = {}
    for task in domain.tasks("train"):
        goal, fact = task.payload.goal, domain.catalogue.facts[task.topic]
        search = f"search[{goal.attributes[0]} {fact.word}]"
        first = domain.catalogue.index.search(search[7:-1])[0] == goal.position
        if len(goal.options) == 2:
            found.setdefault(first, (task, search, fact))
    return found


def test_guided_move_by_move(small):
    """What it does next in every situation, also after moves that it would not make itself."""
    task, search, fact = by_place(small)[True]
    one, two = (f"click[{value}]" for value in task.payload.goal.options.values())
    proof, other = f"click[{fact.proof}]", next(f"click[{page}]" for page in PROOFS if page != fact.proof)
    unasked = next(f"click[{value}]" for value in small.catalogue[task.payload.goal.position].options["color"]
                   if value not in task.payload.goal.options.values())  # fmt: skip
    back, read = "click[< prev]", [search, "click[b1]", proof, "click[< prev]"]
    for actions, want in (
        ([], search), ([search], "click[b1]"), ([search, "click[next >]"], back), ([search, "click[b3]"], back),
        ([search, "click[b1]"], proof), ([search, "click[b1]", unasked], proof),
        ([search, "click[b1]", proof], back), ([search, "click[b1]", "click[reviews]"], back),
        ([search, "click[b1]", other, back], proof), ([search, "click[b1]", "click[reviews]", back], proof),
        (read, one), ([*read, one], two), ([*read, unasked], one), ([*read, one, two], "click[buy now]"),
        ([*read, back], "click[b1]"), ([search, "click[b2]"], one), (["search[nothing]"], "click[back to search]"),
    ):  # fmt: skip
        assert answer(small, "guided", after(small, task, actions)) == want, actions
    task, search, fact = by_place(small)[False]
    read = [search, "click[b1]", f"click[{fact.proof}]", back]
    assert answer(small, "guided", after(small, task, read)) == back
    assert answer(small, "guided", after(small, task, [*read, back])) == "click[b2]"


def test_novice_guesses(small):
    """Any of the three words and either page, each about equally often; a page without proof satisfies it."""
    task, search, fact = by_place(small)[True]
    goal = task.payload.goal
    said = [answer(small, "novice", after(small, task, []), seed) for seed in range(300)]
    for word in TOPICS[task.topic].words:
        assert 70 < said.count(f"search[{goal.attributes[0]} {word}]") < 130
    opened = [answer(small, "novice", after(small, task, [search, "click[b1]"]), seed) for seed in range(100)]
    assert {action: 30 < opened.count(action) < 70 for action in opened} == {f"click[{page}]": True for page in PROOFS}
    other = next(f"click[{page}]" for page in PROOFS if page != fact.proof)
    view = after(small, task, [search, "click[b1]", other, "click[< prev]"])
    assert answer(small, "novice", view) == f"click[{next(iter(goal.options.values()))}]"


def _tokens(response: str) -> list[str]:
    return response.replace("[", "[ ").replace("]", " ]").split()


def test_demonstrations_have_the_form(small):
    """Lower-case words between single blanks, a valid response, 6 to 16 words of thought, a short prompt."""
    words = set(small.words())
    assert small.words() == sorted(words) and len(words) < 500 and {"search[", "click[", "]"} <= words
    for kind in ("guided", "novice"):
        for info in play(small, kind, small.tasks("seen")[::3], seed=1):
            assert info["valid"]
            for _, prompt, text in info["turns"]:
                found = re.fullmatch(r"<think> (.*) </think> <action> (\S.*\S) </action>", text)
                assert found and text == " ".join(text.lower().split())
                assert 6 <= len(found[1].split()) <= 16
                assert set(_tokens(text)) <= words and set(prompt.split()) <= words
                assert len(prompt.split()) <= 100
                assert _decoded(_tokens(found[2])) == found[2]


def _decoded(tokens: list[str]) -> str:
    """As a tokenizer of words writes an action."""
    return " ".join(tokens).replace("[ ", "[").replace(" ]", "]")


def test_styles_vary_and_tell_nothing(small):
    task = small.tasks("seen")[0]
    env = small.make()
    observation, info = env.reset(options={"task": task})
    view = View(task, 0, (), observation, info["admissible"])
    said = {small.player("guided", np.random.default_rng(seed))(view, env) for seed in range(60)}
    assert len(said) == 12 and len({text.split("<action>")[1] for text in said}) == 1


def test_lean_prompt_by_hand(small):
    task = small.tasks("seen")[0]
    wish = read_goal(task.goal)
    info = play(small, "guided", [task])[0]
    first, second = info["turns"][0][1], info["turns"][2][1]
    words = wish.product.replace(",", "")
    assert first.splitlines()[0].startswith(f"task : {words} ")
    assert first.splitlines()[0].endswith(f"under {task.payload.goal.price_cap:.0f}")
    assert first.splitlines()[1:] == ["page : search", "can : search"]
    assert [line.split(" : ")[0] for line in second.splitlines()] == ["task", "before", "before", "page", "can"]
    assert second.splitlines()[2] == "before : results click[ b1 ]"


def test_practice_teaches_reading(small):
    """Other facts than the shop's, told by the note, under which the guided player wins; the same for a seed."""
    games = small.practice(60, seed=4)
    assert [task.digest for task, _ in games] == [task.digest for task, _ in small.practice(60, seed=4)]
    assert [task.digest for task, _ in games] != [task.digest for task, _ in small.practice(60, seed=5)]
    assert len(games) == 60 == len({task.id for task, _ in games})
    told = {(task.topic, text) for task, text in games}
    true = {(name, note(name, fact)) for name, fact in small.catalogue.facts.items()}
    assert len(told - true) > len(told & true)
    for task, text in games:
        assert text == note(task.topic, task.payload.catalogue.facts[task.topic])
        assert set(text.split()) <= set(small.words())
    assert success(play(small, "guided", [task for task, _ in games])) == 1.0


def test_key_moves(small):
    """The guided player always takes what is wanted where it is in view, the novice's wins too; other moves are not
    key moves."""
    taken = seen = 0
    for info in play(small, "guided", small.tasks("seen")):
        for view, _, text in info["turns"]:
            moves = small.key_moves(view)
            seen += bool(moves)
            taken += text.split("<action> ")[1].removesuffix(" </action>") in moves
            assert not moves or Turn(view).page.kind == "item"
            assert set(moves) <= set(view.admissible)
        assert small.key_moves(info["turns"][-1][0]) == ["click[buy now]"]
    assert taken == seen == sum(1 + len(task.payload.goal.options) for task in small.tasks("seen"))
    task, search, _ = by_place(small)[True]
    assert small.key_moves(after(small, task, [search, "click[b2]"])) == []  # the other product


# ----------------------------------------------------------------------------------------------------------- players


def test_players_of_the_generated_shop(shop):
    tasks = shop.tasks("unseen")
    rates = {kind: success(play(shop, kind, tasks)) for kind in ("expert", "guided", "novice", "random")}
    assert rates["expert"] == 1.0
    assert 0.55 < rates["guided"] < 0.85 and 0.1 < rates["novice"] < 0.3 and rates["random"] < 0.02


def test_the_expert_wins_every_real_goal(shared):
    domain = envs.load("webshop", data=str(shared / "webshop"))
    assert success(play(domain, "expert", domain.tasks("unseen"))) == 1.0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux's /proc")
def test_speed_and_memory(shared):
    """At least 5,000 steps a second in one process and under 250 MB with the real 1,000 products."""
    code = (
        "import re, sys, time, numpy as np, envs\n"
        "domain = envs.load('webshop', data=sys.argv[1]); rng = np.random.default_rng(0)\n"
        "env, tasks, steps, begun = domain.make(), domain.tasks('train'), 0, time.process_time()\n"
        "while steps < 6000:\n"
        "    task = tasks[rng.integers(len(tasks))]; _, info = env.reset(options={'task': task}); over = False\n"
        "    while not over:\n"
        "        action = str(rng.choice(info['admissible'])).replace('<your query>', task.goal)\n"
        "        _, _, done, cut, info = env.step(f'<think>x</think><action>{action}</action>')\n"
        "        over, steps = done or cut, steps + 1\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())\n"
        "print(steps / (time.process_time() - begun), peak[1])\n"
        "print([m for m in ('torch', 'spacy', 'flask', 'bs4', 'transformers') if m in sys.modules])"
    )
    run = [sys.executable, "-c", code, str(shared / "webshop")]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    speed, memory = map(float, done.stdout.splitlines()[0].split())
    assert speed > 5000 and memory < 250_000  # steps/s, KiB
    assert done.stdout.splitlines()[1] == "[]"


# ------------------------------------------------------------------------------------------------------------ skills


def mapping(folder: Path) -> dict:
    return json.loads((folder / "skill_mapping.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", [SKILLS, SKILLS / "lean"], ids=["full", "lean"])
def test_every_task_type_has_a_skill(folder):
    table = mapping(folder)
    assert set(table["task_to_skill"]) == set(TYPES) == set(table["skill_files"])
    for file in table["skill_files"].values():
        assert (folder / file).read_text(encoding="utf-8").strip()


def test_full_skills_are_lists_of_advice():
    general = (SKILLS / "general_skills.md").read_text(encoding="utf-8")
    assert 12 <= len(re.findall(r"^\d+\. \*\*", general, re.MULTILINE)) <= 15
    assert general.count("Apply this") == 15
    for file in mapping(SKILLS)["skill_files"].values():
        text = (SKILLS / file).read_text(encoding="utf-8")
        assert 5 <= text.count("Apply this") == len(re.findall(r"^\d+\. \*\*.+?\*\*: ", text, re.MULTILINE)) <= 10


def test_lean_notes_agree_with_what_guided_uses(small):
    """The shipped note of every topic is its fact, and nothing of an answer."""
    topics = mapping(SKILLS / "lean")["topics"]
    assert topics == {name: note(name, fact) for name, fact in small.catalogue.facts.items()}
    assert note("sofa", Fact("couch", "features")) == "for sofa search couch . the proof is in features ."
    answers = {word for kind in KINDS.values() for word in (*kind.titled, *kind.proven)}
    assert not answers & {word for text in topics.values() for word in text.split()}


def test_lean_skills_use_known_words(small):
    words = set(small.words())
    for file in mapping(SKILLS / "lean")["skill_files"].values():
        text = (SKILLS / "lean" / file).read_text(encoding="utf-8").split()
        assert set(text) <= words and len(text) < 30


def test_lean_recipes_name_the_option_groups():
    for name, kind in KINDS.items():
        text = (SKILLS / "lean" / f"{name}.md").read_text(encoding="utf-8")
        assert " and ".join(kind.options) + " must be right" in text


def test_no_environment_reads_skills():
    for file in (ROOT / "envs" / "webshop").glob("*.py"):
        code = file.read_text(encoding="utf-8")
        assert not re.search(r"skills/|skill_mapping|general_skills|import teacher|from teacher", code), file


def test_building_is_quick():
    begun = time.process_time()
    mini.build(7)
    assert time.process_time() - begun < 1
