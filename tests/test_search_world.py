"""Search: the encyclopaedia, who plays it how well, prompts, the skill notes, and the small policy's words."""

import json
import re
from collections import Counter, defaultdict

import numpy as np
import pytest

import envs
from envs.base import SPLITS, View, panel_hash
from envs.search import encyclopaedia as made
from envs.search.bm25 import LocalBM25, tokenize
from envs.search.encyclopaedia import HOUSE_STYLE, NAMES, RELATIONS, VALUES, encyclopaedia
from envs.search.passages import Passage
from envs.search.players import KINDS, entries, find, of_two, parse
from envs.search.prompts import past_steps, plain
from envs.search.questions import KINDS as QUESTION_KINDS
from envs.search.questions import Question
from rollout import play
from teacher import SkillProvider, skill_folder

BOOK = encyclopaedia()


@pytest.fixture(scope="module")
def search():
    return envs.load("search")


# ------------------------------------------------------------------------------------------ the encyclopaedia


def test_it_is_large_enough_and_always_the_same():
    assert len(BOOK.passages) >= 2000
    assert {split: len(BOOK.questions[split]) for split in SPLITS} == {"train": 1600, "seen": 512, "unseen": 512}
    for split in SPLITS:
        assert set(Counter(question.kind for question in BOOK.questions[split]).values()) <= {400, 128}
    again = encyclopaedia.__wrapped__()
    assert again.passages == BOOK.passages and again.questions == BOOK.questions and again is not BOOK
    assert max(len(f"{p.text}".split()) for p in BOOK.passages) <= 12


def test_no_question_twice():
    texts = Counter(question.text for split in SPLITS for question in BOOK.questions[split])
    names = Counter(question.id for split in SPLITS for question in BOOK.questions[split])
    assert max(texts.values()) == 1 and max(names.values()) == 1


def test_unseen_entities_are_in_no_other_question_and_no_other_fact():
    known, new = made._entities()
    new_names = {name for names in new.values() for name in names}
    known_names = {name for names in known.values() for name in names}
    assert not new_names & known_names
    for split in ("train", "seen"):
        text = " / ".join(f"{q.text} {q.golds}" for q in BOOK.questions[split])
        assert not any(name in text for name in new_names)
    for question in BOOK.questions["unseen"]:
        assert set(question.titles) <= new_names
    for passage in BOOK.passages:
        others = known_names if passage.title in new_names else new_names
        assert not any(name in passage.text for name in others)


def test_known_names_use_every_word_of_the_pools():
    known, new = made._entities()
    for kind, pools in NAMES.items():
        words = {word for name in known[kind] for word in name.split()}
        assert words == set(" ".join(pools).split())
        assert {word for name in new[kind] for word in name.split()} <= words
        assert len(set(known[kind] + new[kind])) == sum(made.COUNTS[kind])
        every = np.prod([len(pool.split()) for pool in pools])
        assert len(set(made._names(kind, every, np.random.default_rng(0)))) == every  # no pair comes twice


def test_words_of_names_mean_nothing_else():
    pools = [set(pool.lower().split()) for both in NAMES.values() for pool in both]
    pools += [{value.lower() for value in values} for values in VALUES.values()]
    templates = [f"{r.ask} {r.noun} {r.entry} {r.decoy} {r.word} {r.key}" for r in RELATIONS]
    pools.append(set(re.findall(r"\w\w+", " ".join(templates).lower())))
    pools.append({"older", "newer"})
    assert sum(map(len, pools)) == len(set().union(*pools))


def test_house_words_stand_for_one_fact_each():
    assert len(set(HOUSE_STYLE.values())) == len(HOUSE_STYLE) == len(RELATIONS)
    for relation in RELATIONS:
        assert relation.key in relation.ask and relation.key in relation.decoy.lower()
        assert relation.key not in relation.entry and relation.word not in relation.ask
        entry = tokenize(relation.entry.format(x="x x", y="y y" if relation.noun else "y", w=relation.word))
        decoy = tokenize(relation.decoy.format(x="x x"))
        assert len(entry) == 5 > len(decoy)  # all facts are found as easily as each other, and after the decoys


def test_every_question_is_answered_by_its_entries_alone():
    """A slow reader: from the texts of all passages, by regular expressions over the templates."""
    facts = {}
    for passage in BOOK.passages:
        for relation in RELATIONS:
            form = relation.entry.replace(".", r"\.").format(x=r"(\w+ \w+)", y="(.+)", w=relation.word)
            if match := re.fullmatch(form, passage.text):
                assert (relation.key, match[1]) not in facts, "ambiguous"
                facts[relation.key, match[1]] = match[2]
                assert passage.title == match[1]
    keys = {relation.key: relation for relation in RELATIONS}
    for split in SPLITS:
        for question in BOOK.questions[split]:
            found = [relation for relation in RELATIONS if relation.key in plain(question.text).split()]
            if question.kind in ("direct", "attribute"):
                (relation,) = (r for r in found if r.ask.format(x=question.titles[0]) == plain_case(question.text))
                assert facts[relation.key, question.titles[0]] == question.golds[0] and relation.kind == question.kind
            elif question.kind == "comparison":
                (year,) = (r for r in found if r.value == "year")
                years = [int(facts[year.key, title]) for title in question.titles]
                assert question.golds == (str(min(years) if "older" in question.text else max(years)),)
                assert years[0] != years[1] and all(title in question.text for title in question.titles)
            else:
                subject, middle = question.titles
                said = {(a, b): keys[b].ask.format(x=keys[a].noun.format(x=subject)) for a in keys for b in keys}
                (chain,) = (pair for pair in said if said[pair] == plain_case(question.text))
                assert facts[chain[0], subject] == middle and facts[chain[1], middle] == question.golds[0]
                assert question.golds[0] != subject


def plain_case(text: str) -> str:
    """A question without its capital and its mark."""
    return text[0].lower() + text[1:].removesuffix("?")


def test_the_house_word_finds_the_fact_and_the_questions_words_do_not():
    index = LocalBM25.build(BOOK.passages)
    by_house, by_question = [], []
    for question in BOOK.questions["unseen"]:
        asked = parse(question.text)
        if question.kind in ("direct", "attribute"):
            query = f"{asked.subjects[0]} {asked.relation.word}"
            by_house.append(any(question.golds[0] in p.text for p in index.batch([query], 1)[0]))
        by_question.append(any(question.golds[0] in p.text for p in index.batch([question.text], 3)[0]))
    assert np.mean(by_house) == 1.0 and np.mean(by_question) < 0.25


def test_practice_books_have_other_facts_and_other_words():
    rng = np.random.default_rng(5)
    one, two = made.practice(3, rng), made.practice(3, rng)
    assert sorted(one.style.values()) == sorted(HOUSE_STYLE.values()) and one.style != two.style != HOUSE_STYLE
    assert len(one.questions["train"]) == 12
    assert {p.text for p in one.passages} & {p.text for p in BOOK.passages} < {p.text for p in one.passages}
    known, new = ({name for names in part.values() for name in names} for part in made._entities())
    titles, others = ({p.title for p in book.passages} for book in (one, two))
    assert len(titles) == len(known) and titles != others and not titles & new
    assert {word for name in titles for word in name.split()} <= {word for name in known for word in name.split()}


# ------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize(
    ("question", "keys", "subjects", "which"),
    [
        ("Who wrote Amber Anvil?", ("wrote",), ("amber anvil",), ""),
        ("What job has Ada Abbot?", ("job",), ("ada abbot",), ""),
        ("Where was the person who governs Port Arden born?", ("governs", "born"), ("port arden",), ""),
        ("When did the older of Acorn Guild and Elk House open?", ("open",), ("acorn guild", "elk house"), "older"),
    ],
)
def test_parse_by_hand(question, keys, subjects, which):
    asked = parse(question)
    assert tuple(r.key for r in (asked.inner, asked.relation) if r) == keys
    assert (asked.subjects, asked.which) == (subjects, which)


def test_parse_reads_every_question_and_no_other():
    for split in SPLITS:
        for question in BOOK.questions[split]:
            asked = parse(question.text)
            assert (asked.inner is not None) == (question.kind == "multi_hop")
            assert (asked.which != "") == (question.kind == "comparison")
    for other in ("", "Who wrote it?", "who wrote the book of amber anvil?", "Which river crosses a b c?", "\ud800"):
        assert parse(other) is None


def test_find_needs_subject_form_and_end():
    wrote, taught = RELATIONS[0], RELATIONS[7]
    texts = ["people wrote about a b .", *(f"{x} was penned by d e ." for x in ("a c", "x a b", "a b"))]
    assert find(wrote, "a b", texts)["y"] == "d e" and find(wrote, "a b", texts)["w"] == "penned"
    assert find(wrote, "a b", texts[:3]) is None and find(taught, "a c", texts)["y"] == "d e"
    assert find(wrote, "a b", ["a b was hails by d e ."])["w"] == "hails"  # any style
    assert of_two("older", ("1810", "1790")) == "1790" and of_two("newer", ("1810", "1790")) == "1810"


# ------------------------------------------------------------------------------------------ players


def success(search, kind: str, split: str) -> dict[str, float]:
    won = defaultdict(list)
    for trajectory in play(search, search.tasks(split), kind, seed=0):
        won[trajectory.task.type].append(trajectory.won)
        won["all"].append(trajectory.won)
    return {name: float(np.mean(values)) for name, values in won.items()}


@pytest.mark.parametrize("split", ["seen", "unseen"])
def test_how_well_they_play(search, split):
    rates = {kind: success(search, kind, split) for kind in KINDS}
    print(split, rates)
    assert rates["expert"]["all"] == 1.0 and rates["guided"]["all"] >= 0.9
    assert 0.20 <= rates["novice"]["all"] <= 0.30
    assert rates["random"]["all"] < 0.05 and max(rates["random"].values()) < 0.1  # not answerable without a search


def test_responses_are_valid_and_short_words(search):
    vocabulary = set(search.words())
    for kind in KINDS:
        for trajectory in play(search, search.tasks("seen")[::4], kind, seed=1):
            for step in trajectory.steps:
                assert step.valid and step.action
                match = re.fullmatch(r"<think> (.+) </think> <(search|answer)> (.+) </\2>", step.response)
                assert match and "  " not in step.response
                if kind in ("guided", "novice"):
                    assert step.response == step.response.lower() and set(step.response.split()) <= vocabulary
                    assert 6 <= len(match[1].split()) <= 16


def test_guided_and_novice_use_the_view_and_the_stream_alone(search):
    for kind in ("guided", "novice"):
        for task in search.tasks("unseen")[::50]:
            env = search.make()
            observation, _ = env.reset(options={"task": task})
            view = View(task, 0, (), observation, ())
            hidden = Question(task.id, task.goal, ("nothing",), "x", "test", "direct")
            blind = task.__class__(**(task.__dict__ | {"payload": task.payload.__class__(hidden, None, HOUSE_STYLE)}))
            responses = [
                search.player(kind, np.random.default_rng(3))(v, e)
                for v, e in ((view, env), (View(blind, 0, (), observation, ()), None))
            ]
            assert responses[0] == responses[1]


def test_style_varies_and_tells_nothing(search):
    task = search.tasks("unseen")[0]
    view = View(task, 0, (), task.goal, ())
    said = {search.player("guided", np.random.default_rng(seed))(view, None) for seed in range(40)}
    assert 2 <= len(said) <= 4 and len({text.split("<search>")[1] for text in said}) == 1


def test_the_novice_tries_many_words_and_none_twice(search):
    task = next(task for task in search.tasks("unseen") if task.type == "direct")
    view = View(task, 0, (), task.goal, ())
    words = Counter(
        search.player("novice", np.random.default_rng(seed))(view, None).split()[-2] for seed in range(1400)
    )
    assert set(words) == set(HOUSE_STYLE.values()) and min(words.values()) > 50
    for trajectory in play(search, search.tasks("unseen")[:60], "novice", seed=2):
        queries = [step.action for step in trajectory.steps if step.action.startswith("<search>")]
        assert len(set(queries)) == len(queries)
        assert trajectory.steps[-1].action.startswith("<answer>")  # it never searches in the last turn


def test_key_moves_name_what_a_guided_player_does_next(search):
    seen = 0
    for trajectory in play(search, search.tasks("unseen")[::3], "guided", seed=3):
        history = [(step.observation, step.action) for step in trajectory.steps]
        for turn, step in enumerate(trajectory.steps):
            moves = search.key_moves(View(trajectory.task, turn, tuple(history[:turn]), step.observation, ()))
            assert not moves or step.action in moves
            seen += bool(moves)
        assert moves == {step.action}  # at the end the answer is in view
    assert seen > 170


def test_players_take_other_questions_too(search):
    from tests.test_search_rules import domain

    for kind in KINDS:
        (trajectory,) = play(domain(golds=("Harbor Ledger",)), domain().tasks("train")[:1], kind, 0)
        assert trajectory.ended in ("won", "done") and all(step.valid for step in trajectory.steps)
    question = Question("nq:1", "who was it?", ("Harbor Ledger",), "nq", "train", "direct")
    from envs.search import SearchQA

    index = LocalBM25.build([Passage("1", "Harbor Ledger", "it")])
    other = SearchQA({split: [question] for split in SPLITS}, index, "x")
    assert play(other, other.tasks("train"), "expert", 0)[0].won
    assert not play(other, other.tasks("train"), "guided", 0)[0].won  # "who was it" holds stop words alone
    with pytest.raises(ValueError, match="unknown player 'wizard'"):
        other.player("wizard", np.random.default_rng(0))


def test_practice_is_played_by_its_own_style(search):
    games = search.practice(64, seed=3)
    assert len(games) == 64 and len({task.id for task, _ in games}) == 64
    assert len({json.dumps(task.payload.style) for task, _ in games}) == 8
    assert len(Counter(task.type for task, _ in games)) == 4
    for task, note in games:
        needed = {r.key for r in (parse(task.goal).relation, parse(task.goal).inner) if r}
        told = dict(pair.split(" is ") for pair in note.removesuffix(" .").split(" . "))
        assert needed <= set(told) and all(task.payload.style[key] == word for key, word in told.items())
    assert all(trajectory.won for trajectory in play(search, [task for task, _ in games], "guided", 0))
    again = search.practice(64, seed=3)
    assert [(task, task.digest, note) for task, note in again] == [(task, task.digest, note) for task, note in games]


# ------------------------------------------------------------------------------------------ prompts


def view_after(task, *steps, observation=""):
    return View(task, len(steps), steps, observation, ())


PAGE = '<information>Doc 1(Title: "Amber Anvil") People wrote about Amber Anvil.</information>'


def test_prompts_by_hand(search):
    task = next(task for task in search.tasks("train") if task.type == "direct")
    first = search.prompt(view_after(task, observation=task.goal), lean=False)
    assert first.startswith("You answer a question step by step, with a search engine at hand.\nQuestion: " + task.goal)
    assert "already taken" not in first and "step 1 of 4" in first and "<answer> Beijing </answer>" in first
    later = view_after(task, (task.goal, "<search>a</search>"), (PAGE, ""), observation="Again.")
    full = search.prompt(later, lean=False)
    assert "already taken 2 step(s):\n" + f"Step 1:<search>a</search> {PAGE}\nStep 2: Again." in full
    lean = search.prompt(later, lean=True)
    assert lean == (
        f"question {plain(task.goal)} search a page people wrote about amber anvil . nothing page empty . turn 3 of 4"
    )


def test_a_window_shows_its_own_steps_and_their_numbers(search):
    task = search.tasks("train")[0]
    steps = (("page 2", "<search>3</search>"), ("page 3", "<search>4</search>"))
    view = View(task, 4, steps, "page 4", ())
    assert past_steps(view) == [("<search>3</search>", "page 3"), ("<search>4</search>", "page 4")]
    assert "Step 3:<search>3</search> page 3\nStep 4:<search>4</search> page 4" in search.prompt(view, lean=False)
    assert past_steps(View(task, 4, (), "page 4", ())) == []


@pytest.mark.parametrize("style", ["search-r1", "verl-agent"])
def test_lean_prompts_are_short_and_made_of_known_words(style):
    search = envs.load("search", style=style)
    vocabulary, longest = set(search.words()), 0
    for trajectory in play(search, search.tasks("unseen")[::2], "novice", seed=4):
        for step in trajectory.steps:
            words = step.prompt.split(" ")
            assert set(words) <= vocabulary
            longest = max(longest, len(words))
    assert 80 < longest <= 150
    assert search.words() == sorted(set(search.words())) and len(search.words()) <= 1500


# ------------------------------------------------------------------------------------------ skills


def test_lean_notes_say_what_guided_uses(search):
    provider = SkillProvider(skill_folder("search", lean=True))
    assert provider.topics == {f"made-{kind}": made.note(kind, HOUSE_STYLE) for kind in QUESTION_KINDS}
    vocabulary = set(search.words())
    for split in SPLITS:
        for task in search.tasks(split)[::7]:
            note = provider.text(task)
            assert set(note.split()) <= vocabulary
            asked = parse(task.goal)
            for relation in (asked.relation, asked.inner):
                assert relation is None or f"{relation.key} is {relation.word} ." in note
    texts = provider.texts
    assert "first" in texts["multi_hop_reasoning"] and "inner" in texts["multi_hop_reasoning"]
    assert "older is the smaller year" in texts["compare"] and of_two("older", ("1", "2")) == "1"


@pytest.mark.parametrize("lean", [True, False])
def test_skills_cover_every_task_and_give_no_answer_away(search, lean):
    provider = SkillProvider(skill_folder("search", lean))
    names = {name.lower() for part in made._entities() for names in part.values() for name in names}
    for split in SPLITS:
        for task in search.tasks(split)[::9]:
            text = provider.text(task).lower()
            assert len(text) > 50 and not any(name in text for name in names)
    assert set(provider.task_to_skill) == set(QUESTION_KINDS)
    numbers = re.findall(r"\d{4}", " ".join([provider.general, *provider.texts.values(), *provider.topics.values()]))
    assert numbers == []


def test_full_notes_tell_the_house_style_too():
    topics = SkillProvider(skill_folder("search", lean=False)).topics
    for kind in QUESTION_KINDS:
        for pair in made.note(kind, HOUSE_STYLE).removesuffix(" .").split(" . "):
            key, word = pair.split(" is ")
            assert f'"{key}" in a question is "{word}"' in topics[f"made-{kind}"]


def test_full_skills_are_numbered_items_with_their_occasion():
    folder = skill_folder("search", lean=False)
    for file in sorted(folder.glob("*.md")):
        items = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
        assert len(items) == 10 if file.name == "general_skills.md" else 5 <= len(items) <= 10
        for number, item in enumerate(items, 1):
            assert re.fullmatch(rf"{number}\. [A-Z\"][^:]+: .+\. Apply this (when|before|after|from) .+\.", item), item


def test_panels_are_frozen(search):
    panels = {split: panel_hash(search.tasks(split)) for split in SPLITS}
    assert len(set(panels.values())) == 3
    assert panels == {split: panel_hash(envs.load("search").tasks(split)) for split in SPLITS}
    assert entries(View(search.tasks("train")[0], 0, (), "", ())) == []
