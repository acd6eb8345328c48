"""bench/: what the scripts report, at toy size. No time is judged here."""

import csv
import sys

import pytest
import torch

from bench import environments, scale, teacher, trl
from bench.loop import Loop
from bench.measure import Contender, compete, ratio, spread
from policy import Policy
from warmstart import tokenizer_of

CONTENDER = "from bench.measure import turns\nfor n, told in enumerate(turns()): print('noise'); told['n'] = n"


class Whisper:
    """A skill provider of one text."""

    def text(self, task) -> str:
        return "secret secret"


def toy_loop(policy, domain, provider=None, **changes) -> Loop:
    small = {"groups": 3, "group_size": 2, "max_response": 6, "max_turns": 2, "micro_tokens": 200}
    return Loop(policy, domain, provider, **small | changes)


def test_spread_and_ratio_by_hand():
    assert spread([3.0, 1.0, 2.0]) == "2.00 [1.00, 3.00]"
    assert ratio([1.0, 3.0, 4.0], [2.0, 2.0, 2.0], 1) == "1.5 [0.5, 2.0]"


def test_contenders_take_turns_and_warm_up():
    commands = {name: [sys.executable, "-c", CONTENDER] for name in ("a", "b")}
    reports = compete(commands, rounds=2, warm=1)
    assert [[report["n"] for report in reports[name]] for name in "ab"] == [[1, 2], [1, 2]]
    assert all(0 <= report["cpu"] < 5 for name in "ab" for report in reports[name])


def test_a_contender_that_dies_says_why():
    contender = Contender([sys.executable, "-c", "raise SystemExit('no such peer')"])
    with pytest.raises(RuntimeError, match="no such peer"):
        contender.turn()
    contender.process.wait()


def test_the_loop_times_the_phases_that_training_has(policy, domain):
    before = [p.clone() for p in policy.model.parameters()]
    seconds, batch = toy_loop(policy, domain, Whisper()).step()
    assert list(seconds) == ["rollout", "old", "ref", "teacher", "credit", "update"]
    assert batch.turn.max() <= 1 and len(set(batch.episode.tolist())) == 6
    assert any(not torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))
    assert list(toy_loop(policy, domain, kl=0.0, mini_rows=0).step()[0]) == ["rollout", "credit", "update"]


def test_teacher_ratios_by_hand(policy, domain):
    seconds = {"rollout": [3.0], "teacher": [1.0], "update": [5.0], "step": [10.0], "floor": [2.0]}
    got = [values[0] for values in teacher.ratios(seconds).values()]
    assert got == pytest.approx([0.1, 1 / 8, 10 / 9, 0.5])
    measured, size = teacher.measure(toy_loop(policy, domain, Whisper(), lr=0.0), rounds=2)
    assert {"teacher", "step", "floor"} < set(measured) and all(len(values) == 2 for values in measured.values())
    assert "with skill" in size


def test_both_contenders_of_trl_read_the_same(policy):
    loop = Loop(Policy(policy.model, tokenizer_of(trl.WORDS), lean=True), trl.Games(2), groups=8, max_turns=2)
    policy = loop.policy
    task = loop.tasks[0]
    text = policy.template_text([{"role": "user", "content": task.goal}])
    assert len(loop.tasks) == trl.GROUPS and len(policy.encode(task.goal)) == trl.PROMPT
    assert policy.encode(task.goal) == policy.tokenizer(text)["input_ids"]
    env = loop.domain.make()
    env.reset(options={"task": task})
    observation, reward, _, over, _ = env.step("w0 w1")
    assert (len(observation.split()), reward, over) == (trl.REPLY, 0.5, False)
    assert env.step("w2")[1::2] == (1.0, True)


def test_trl_is_told_what_a_tool_is():
    pytest.importorskip("trl")
    from trl.chat_template_utils import is_chat_template_prefix_preserving, supports_tool_calling

    tokenizer = tokenizer_of(trl.WORDS)
    environment = trl.speak_again(tokenizer)()
    environment.reset()
    assert len(environment.reply().split()) == trl.REPLY
    assert supports_tool_calling(tokenizer) and is_chat_template_prefix_preserving(tokenizer)


def test_environments_report(monkeypatch, tmp_path):
    monkeypatch.setenv("ADRS_TEST_DATA", str(tmp_path))
    assert environments.alfworld(None, 1) == [f"alfworld: skipped, no games at {tmp_path}/alfworld"]
    assert "KB an environment" in environments.memory("search", count=3)
    assert environments.webshop(1).startswith("webshop (generated): ")


def test_retrieval_reports():
    pytest.importorskip("rank_bm25")
    lines = environments.retrieval(1)
    assert [line.split(":")[0] for line in lines] == ["retrieval webshop", "retrieval search"]


def test_alfworld_without_the_engine(shared, monkeypatch):
    monkeypatch.setattr(environments, "compete", lambda commands, rounds: {"native": [{"load": 0.002, "step": 1e-4}]})
    lines = environments.alfworld(None, 1)
    assert lines[0] == "alfworld load: native 2.000 [2.000, 2.000] ms" and "--engine" in lines[-1]


def test_scale_finds_a_line_and_draws_it(tmp_path):
    a, b, error = scale.line([{"tokens": n, "cpu": 0.5 + 0.01 * n} for n in (10, 100, 1000)])
    assert (a, b, error) == pytest.approx((0.5, 0.01, 0.0), abs=1e-9)
    rows = list(scale.sweeps(episodes=(8,), turns=(1,), widths=(32,)))
    assert [row["sweep"] for row in rows] == ["episodes", "turns", "model"]
    assert all(row["cpu"] > 0 and 0 <= row["padding"] < 1 and row["tokens"] > row["rows"] for row in rows)
    scale.write(rows, tmp_path / "s")
    with (tmp_path / "s.csv").open() as file:
        assert [int(row["episodes"]) for row in csv.DictReader(file)] == [8, 16, 16]
    assert (tmp_path / "s.png").stat().st_size > 10_000
