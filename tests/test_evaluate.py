"""evaluate.py: panels, rows of results, intervals."""

import json
from dataclasses import replace

import pytest

from envs.base import Task, panel_hash, parse_action, stratified
from evaluate import by_data_set, evaluate, panel, percent, result_row, scripted_rates, table
from rollout import Trajectory


def tasks(counts: dict[str, int]) -> list[Task]:
    pairs = [(kind, i) for kind in sorted(counts) for i in range(counts[kind])]
    return [Task(f"{kind}/{i:03d}", kind, "do it", digest=str(i)) for kind, i in pairs]


def test_wilson_interval_by_hand():
    # (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n), p = 1/2, n = 100, z = 1.96
    assert percent(50, 100) == "50.0 [40.4, 59.6] (50/100)"
    assert percent(0, 10) == "0.0 [0.0, 27.8] (0/10)" and percent(121, 128) == "94.5 [89.1, 97.3] (121/128)"


def test_panels_are_frozen_and_each_task_is_once(domain):
    assert panel(domain, "unseen", 0) == panel(domain, "unseen", 99) == domain.tasks("unseen")
    small = panel(domain, "unseen", 6)
    assert small == panel(domain, "unseen", 6) and len({task.id for task in small}) == 6
    assert [task.type for task in small].count("say_red") == 2


def test_the_hash_names_the_content():
    panel = tasks({"a": 3})
    assert panel_hash(panel) == panel_hash(tasks({"a": 3}))
    assert panel_hash(panel) != panel_hash(panel[:2])
    assert panel_hash(panel) != panel_hash([*panel[:2], replace(panel[2], digest="other")])
    for wrong in (panel[::-1], [*panel, panel[-1]]):
        with pytest.raises(ValueError, match="each task once"):
            panel_hash(wrong)


def test_stratified_keeps_proportions_and_nests():
    every = tasks({"a": 60, "b": 30, "c": 10})
    for count in (10, 50, 99):
        chosen = stratified(every, count, seed=1)
        assert len(chosen) == count and chosen == sorted(chosen, key=lambda task: task.id)
        for kind, share in (("a", 0.6), ("b", 0.3), ("c", 0.1)):
            assert abs(sum(task.type == kind for task in chosen) - share * count) < 1
    assert set(t.id for t in stratified(every, 20, 1)) < set(t.id for t in stratified(every, 40, 1))
    assert stratified(every, 20, 1) != stratified(every, 20, 2)
    for count in (0, 101):
        with pytest.raises(ValueError, match="of 100 tasks"):
            stratified(every, count)


def test_scores_by_data_set_weigh_questions_sets_and_all():
    row = {"sources": ["nq", "nq", "nq", "musique"], "outcomes": "1001", "scores": [1.0, 0.5, 0.0, 1.0]}
    assert [line.split() for line in by_data_set(row)] == [
        ["micro/musique", "EM", "100.0", "F1", "100.0"],
        ["micro/nq", "EM", "33.3", "F1", "50.0"],
        ["macro", "EM", "66.7", "F1", "75.0"],
        ["overall", "EM", "50.0", "F1", "62.5"],
    ]
    del row["scores"]  # all scores are outcomes
    assert by_data_set(row)[-1].split() == ["overall", "EM", "50.0", "F1", "50.0"]


def test_a_row_of_results(domain):
    won = [i % 2 == 0 for i in range(12)]
    pairs = zip(domain.tasks("seen"), won, strict=True)
    played = [Trajectory(task, i, [None] * 2, win, float(win)) for i, (task, win) in enumerate(pairs)]
    row = result_row(played, "seen", 0.4, {"expert": 1.0, "random": 0.25})
    assert row["outcomes"] == "101010101010" and row["success"] == 0.5 and row["n"] == 12 and "scores" not in row
    assert row["panel_hash"] == panel_hash(domain.tasks("seen")) and json.loads(json.dumps(row)) == row
    shown = table(row)
    assert "say_red" in shown and "50.0 [25.4, 74.6] (6/12)" in shown and "expert 100.0, random search 25.0" in shown
    played[0].score = 0.5
    assert result_row(played, "seen", 0.4, {})["scores"][0] == 0.5


def test_evaluation_is_the_same_in_any_batch_and_reports_each_task(policy, domain):
    held_out = domain.tasks("unseen")
    whole = evaluate(policy, domain, held_out, 0.7, 8)
    parts = evaluate(policy, domain, held_out, 0.7, 8, batch=5)
    assert [t.task.id for t in whole] == [task.id for task in held_out]
    assert [t.won for t in whole] == [t.won for t in parts]
    assert [s.response_ids for t in whole for s in t.steps] == [s.response_ids for t in parts for s in t.steps]
    rates = scripted_rates(domain, held_out)
    assert rates["expert"] == 1.0 and rates == scripted_rates(domain, held_out)


@pytest.mark.parametrize(
    ("response", "action", "valid"),
    [
        ("<think>a</think><action>Go To desk 1</action>", "go to desk 1", True),
        ("<think>a</think> <action> look </action> so there", "look", True),
        ("<action>look</action><think>a</think>", "look", False),
        ("<think>a</think><action>look</action><action>open</action>", "look", False),
        ("<think>a<think>b</think><action>look</action>", "look", False),
        ("<action>look</action>", "look", False),
        ("<think>a</think><action>look", "<think>a</think><action>look", False),
        ("</action>x<action>", "</action>x<action>", False),
        ("<think>想</think><action>look</action>", "look", False),
        ("x" * 50, "x" * 30, False),
        ("", "", False),
        ("<THINK>a</THINK><ACTION>look</ACTION>", "look", True),
    ],
)
def test_parse_action(response, action, valid):
    assert parse_action(response) == (action, valid)


def test_parse_action_where_the_prompt_holds_the_thought():
    assert parse_action("<action>look</action>", think_in_prompt=True) == ("look", True)
    assert parse_action("<think>a</think><action>look</action>", think_in_prompt=True) == ("look", True)
    assert parse_action("<action>look</action><action>x</action>", think_in_prompt=True) == ("look", False)
