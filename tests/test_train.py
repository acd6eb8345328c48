"""train.py and settings.py: credit, the update, whole runs on the toy domain, resuming, stopping, two processes."""

import json
import signal
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator, PartialState, debug_launcher
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

import train as module
from policy import score, token_logp
from rollout import collate, rollout, stream
from settings import EVALUATION_ONLY, METHODS, NEEDS_TEACHER, SKILL_IN_PROMPT, Settings, check, parse, resolve
from tests.toy import Toy, lines, weights
from train import World, credit, draw_tasks, gather_world
from tva import Pool
from update import update


def settings(**changes) -> Settings:
    base = Settings(steps=10, window_start=0.0, window_stop=1.0, clip_mode="none", eta=0.1)
    return replace(resolve(base, small=True, cuda=False, domain=Toy()), **changes)


def world(seed: int = 0, groups: int = 3, episodes: int = 4, turns: int = 3, width: int = 6) -> World:
    """Random rows: episodes of 1 to `turns` turns, returns 0 or 10, some turns invalid, three anchors a task."""
    generator = torch.Generator().manual_seed(seed)

    def randint(high, low=0):
        return int(torch.randint(low, high, (), generator=generator))

    rows = []
    for episode in range(groups * episodes):
        length, won = randint(turns + 1, 1), randint(2)
        for turn in range(length):
            last = turn == length - 1
            rows.append((episode // episodes, episode, turn, 10.0 * won * last, randint(5) > 0, f"state {randint(3)}"))
    group, episode, turn, reward, valid, anchors = zip(*rows, strict=True)
    n = len(rows)
    lengths = torch.randint(1, width + 1, (n,), generator=generator)
    mask = torch.arange(width) < lengths[:, None]

    def logps():
        return -torch.rand(n, width, generator=generator).mul(3).where(mask, torch.zeros(()))

    return World(mask, torch.tensor(group), torch.tensor(episode), torch.tensor(turn), torch.tensor(reward),
                 torch.tensor(valid), list(anchors), [f"task {g}" for g in group],
                 logps(), logps(), logps(), logps())  # fmt: skip


# ------------------------------------------------------------------------------------------------ credit


@pytest.mark.parametrize("backbone", ["grpo", "gigpo"])
def test_eta_zero_is_the_backbone_bit_for_bit(backbone):
    for join in ("post_whiten", "pre_whiten", "raw", "sum_only"):
        plain = credit(settings(method="none", backbone=backbone), world(), 1, Pool(0))
        shaped = credit(settings(method="adrs", tva=True, backbone=backbone, eta=0.0, join=join), world(), 1, Pool(0))
        assert torch.equal(plain.adv, shaped.adv)


def test_the_term_changes_credit_within_rows_and_is_bounded():
    w = world()
    base = credit(settings(method="none"), w, 1, Pool(0)).adv
    for mode, bound in (("fixed", 0.05), ("none", None)):
        made = credit(settings(clip_mode=mode, clip_term=0.05, flat_gate=1.0), w, 1, Pool(0))
        assert torch.equal(made.adv, base + made.term) and made.term.abs().max() > 0
        assert bound is None or made.term.abs().max() <= bound
    whitened = made.term[w.mask & (w.group == 0)[:, None]] / 0.1
    assert whitened.mean().abs() < 1e-5 and whitened.std() == pytest.approx(1, abs=1e-4)


def test_the_gate_cancels_under_pre_whiten_at_level_2_and_acts_under_post_whiten():
    for level in ("L2-row", "L2-traj"):
        for join, same in (("pre_whiten", True), ("post_whiten", False), ("raw", False)):
            with_gate, without = (
                credit(settings(join=join, level=level, tva=tva), world(), 1, Pool(0)).adv for tva in (True, False)
            )
            assert torch.allclose(with_gate, without, atol=1e-6) == same


def test_at_level_3_the_gate_acts_under_pre_whiten_too():
    with_gate, without = (
        credit(settings(join="pre_whiten", backbone="gigpo", tva=tva), world(), 1, Pool(0)).adv for tva in (True, False)
    )
    assert not torch.allclose(with_gate, without, atol=1e-3)


def test_sum_only_changes_nothing_beyond_float_error():
    base = credit(settings(method="none"), world(), 1, Pool(0)).adv
    for eta in (0.1, 10.0):
        assert torch.allclose(credit(settings(join="sum_only", eta=eta), world(), 1, Pool(0)).adv, base, atol=1e-4)


def flat(w: World) -> World:
    """No reward and every turn valid: no group has anything to compare."""
    return replace(w, reward=torch.zeros_like(w.reward), valid=torch.ones_like(w.valid))


@pytest.mark.parametrize("backbone", ["grpo", "gigpo"])
def test_a_group_without_spread_stays_exactly_zero(backbone):
    for join in ("post_whiten", "pre_whiten", "raw", "sum_only"):
        made = credit(settings(join=join, tva=True, backbone=backbone), flat(world()), 1, Pool(0))
        assert (made.adv == 0).all()


def test_shaped_returns_turn_float_noise_into_advantages():
    """The hazard of method.md 0.7, reproduced: rows that sum to 1e-6 instead of 0, divided by a deviation of 1e-6."""
    made = credit(settings(credit="shaped", join="sum_only"), flat(world()), 1, Pool(0))
    assert made.adv.abs().max() > 0.01


def test_zero_variance_apply_gives_the_term_to_such_groups():
    made = credit(settings(zero_variance="apply"), flat(world()), 1, Pool(0))
    assert torch.equal(made.adv, made.term) and made.adv.abs().max() > 0.01


def test_the_window_closes():
    base = credit(settings(method="none"), world(), 1, Pool(0)).adv
    inside, outside = (
        credit(settings(window_start=0.2, window_stop=0.5, steps=10), world(), step, Pool(0)).adv for step in (3, 6)
    )
    assert torch.equal(outside, base) and not torch.equal(inside, base)


@pytest.mark.parametrize("backbone", ["grpo", "gigpo"])
@pytest.mark.parametrize("level", ["L1", "L2-row", "L2-traj", "L3"])
def test_every_level_gates_and_logs_its_control(backbone, level):
    made = credit(settings(backbone=backbone, level=level, tva=True), world(), 1, Pool(0))
    assert 0 < made.metrics["tva/gate_mean"] < 1
    if level != "L1":
        assert made.metrics["tva/control_mean"] != made.metrics["tva/d_mean"]
        same = credit(settings(level=level, tva=True), replace(world(), sampler_logp=world().teacher_logp), 1, Pool(0))
        assert same.metrics["tva/control_mean"] == same.metrics["tva/d_mean"]


def test_row_order_does_not_matter():
    w, made = world(), credit(settings(tva=True, backbone="gigpo"), world(), 1, Pool(0))
    order = torch.randperm(len(w.group), generator=torch.Generator().manual_seed(1))
    shuffled = World(
        **{name: value[order] for name, value in vars(w).items() if isinstance(value, torch.Tensor)},
        anchors=[w.anchors[i] for i in order],
        task_ids=[w.task_ids[i] for i in order],
    )
    again = credit(settings(tva=True, backbone="gigpo"), shuffled, 1, Pool(0))
    assert torch.allclose(again.adv, made.adv[order], atol=1e-5)


def test_the_controls_do_something():
    w = world()
    scores = {kind: credit(settings(score=kind), w, 1, Pool(0)).term for kind in ("teacher_logprob", "gap", "noise")}
    assert not torch.allclose(scores["teacher_logprob"], scores["gap"], atol=1e-3)
    assert scores["noise"].std() == pytest.approx(scores["gap"].std().item(), rel=0.2)
    assert torch.equal(scores["noise"], credit(settings(score="noise"), w, 1, Pool(0)).term)
    flat_gate = credit(settings(flat_gate=0.6), w, 1, Pool(0)).term
    assert torch.allclose(flat_gate, 0.6 * scores["teacher_logprob"], atol=1e-6)


def test_a_pooled_gate_remembers_earlier_visits():
    pool = Pool(0.9)
    first = credit(settings(tva=True, tva_pool=0.9), world(0), 1, pool)
    second = credit(settings(tva=True, tva_pool=0.9), world(1), 2, pool)
    alone = credit(settings(tva=True), world(1), 2, Pool(0))
    assert torch.equal(first.gate, credit(settings(tva=True), world(0), 1, Pool(0)).gate)
    assert (second.gate - first.gate[0]).abs().min() < (alone.gate - first.gate[0]).abs().max()
    assert second.metrics["tva/pooled_mean"] == pytest.approx(
        0.9 * first.metrics["tva/d_mean"] + 0.1 * alone.metrics["tva/d_mean"], abs=1e-5
    )


def test_rlsd_scales_what_the_backbone_gives():
    w = world()
    base = credit(settings(method="none"), w, 1, Pool(0)).adv
    early, late = (credit(settings(method="rlsd"), w, step, Pool(0)).adv for step in (1, 200))
    assert torch.equal(late, base) and not torch.equal(early, base)
    assert torch.equal(early.sign(), base.sign()) and ((early / base)[base != 0] - 1).abs().max() <= 0.1001


# ------------------------------------------------------------------------------------------------ update


@pytest.fixture
def episodes(policy, domain):
    tasks = domain.tasks("train")[:4]
    starts = [(g, t, stream(0, 1, t, 4 * g + k)) for g, t in enumerate(tasks) for k in range(4)]
    return collate(rollout(policy, domain, starts, 1.0, 8), policy.tokenizer.pad_token_id)


def one_update(policy, batch, **changes):
    s = settings(**{"kl": 0.0, "lr": 0.1} | changes)
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=s.lr)
    logps = {"old_logp": None, "ref_logp": None, "teacher_logp": None}
    if s.kl > 0:
        logps["ref_logp"] = score(policy.model, batch.rows, s.temperature, 500) - 0.1
    if s.method != "adrs":
        logps["teacher_logp"] = score(policy.model, batch.rows, s.temperature, 500) + 0.2
    adv = torch.linspace(-1, 1, len(batch.steps))[:, None].expand(batch.rows.mask.shape)
    metrics = update(Accelerator(cpu=True), policy.model, optimizer, s, batch, logps, adv)
    change = {name: (p.detach() - before[name]).clone() for name, p in policy.model.named_parameters()}
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            parameter.copy_(before[name])
    return change, metrics


def test_micro_batches_do_not_change_the_update(policy, episodes):
    whole, metrics = one_update(policy, episodes, micro_tokens=10**6, kl=0.5)
    for tokens in (1, 60, 300):
        parts, again = one_update(policy, episodes, micro_tokens=tokens, kl=0.5)
        assert all(torch.allclose(parts[name], whole[name], atol=1e-6) for name in whole)
        assert again["actor/pg_loss"] == pytest.approx(metrics["actor/pg_loss"], abs=1e-6)


def test_the_first_update_has_ratio_one(policy, episodes):
    _, metrics = one_update(policy, episodes, mini_rows=0)
    assert metrics["actor/ppo_kl"] == 0 and metrics["actor/pg_clipfrac"] == 0
    assert metrics["sampler/logp_diff"] < 1e-5


def test_the_update_is_the_token_mean_policy_gradient(policy, episodes):
    change, _ = one_update(policy, episodes, entropy=0.0, max_grad_norm=1e9)
    adv = torch.linspace(-1, 1, len(episodes.steps))[:, None].expand(episodes.rows.mask.shape)
    logp, _ = token_logp(policy.model, episodes.rows, 1.0)
    objective = (adv * logp)[episodes.rows.mask].mean()
    gradients = torch.autograd.grad(objective, list(policy.model.parameters()))
    for name, gradient in zip(change, gradients, strict=True):
        assert torch.allclose(change[name], 0.1 * gradient, atol=1e-6), name


@pytest.mark.parametrize("changes", [{"method": "sdar"}, {"method": "skill_sd"}, {"kl": 0.5}, {"entropy": 0.1}])
def test_every_loss_moves_the_weights(policy, episodes, changes):
    plain, _ = one_update(policy, episodes, method="none")
    moved, metrics = one_update(policy, episodes, **{"method": "none", "distil": 0.5} | changes)
    assert any(not torch.allclose(plain[name], moved[name], atol=1e-6) for name in plain)
    named = {"method": "distil/loss", "kl": "actor/kl_loss", "entropy": "actor/entropy_loss"}
    assert named[next(iter(changes))] in metrics


def test_mini_batches_make_several_steps(policy, episodes):
    one, _ = one_update(policy, episodes, max_grad_norm=1e9)
    many, _ = one_update(policy, episodes, mini_rows=8, max_grad_norm=1e9)
    assert any(not torch.allclose(one[name], many[name], atol=1e-4) for name in one)


def test_a_number_that_is_not_finite_stops_before_the_update(policy, episodes):
    adv = torch.full(episodes.rows.mask.shape, float("nan"))
    before = [p.detach().clone() for p in policy.model.parameters()]
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.1)
    logps = {"old_logp": None, "ref_logp": None, "teacher_logp": None}
    with pytest.raises(FloatingPointError, match="the loss is nan in rows"):
        update(Accelerator(cpu=True), policy.model, optimizer, settings(kl=0.0), episodes, logps, adv)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))


# ------------------------------------------------------------------------------------------------ tasks


def test_tasks_come_in_shuffled_epochs(domain):
    tasks, s = domain.tasks("train"), settings(groups=5)
    drawn = [task.id for step in range(1, 13) for task in draw_tasks(tasks, s, step)]
    for epoch in range(5):
        assert sorted(drawn[12 * epoch : 12 * epoch + 12]) == [task.id for task in tasks]
    assert drawn[:12] != drawn[12:24]
    assert drawn != [task.id for step in range(1, 13) for task in draw_tasks(tasks, replace(s, seed=1), step)]


# ------------------------------------------------------------------------------------------------ whole runs


def test_a_run_leaves_what_it_promises(launch):
    folder = launch("--steps", "2", "--tva", "--preset", "always", "--eval_every", "1")
    log, evals = lines(folder / "log.jsonl"), lines(folder / "eval.jsonl")
    assert [row["step"] for row in log] == [0, 1, 2] and [row["step"] for row in evals] == [0, 0, 1, 1, 2, 2]
    assert {"val/success_rate", "episode/length/mean", "response_length/mean", "actor/kl_loss", "tva/gate_mean",
            "tva/control_mean", "adrs/term_abs_mean", "teacher/gap_mean", "tokens/response"} <= set(log[1])  # fmt: skip
    config = json.loads((folder / "config.json").read_text())
    assert config["settings"]["tva"] and config["panels"]["unseen"] == {"hash": evals[0]["panel_hash"], "n": 6}
    assert all(len(row["outcomes"]) == row["n"] == 6 and row["expert"] == 1.0 for row in evals)
    fresh = next(row for row in lines(folder / "episodes.jsonl") if row["set"] == "fresh")
    turn = fresh["turns"][0]
    assert len(turn["tokens"]) == len(turn["teacher_logp"]) == len(turn["adv"]) == len(turn["student_logp"])
    assert (folder / "checkpoint-2" / "manifest.json").is_file()


def test_eta_zero_trains_the_backbones_weights_bit_for_bit(launch):
    a = launch("--steps", "2", "--method", "none", "--run", "a")
    b = launch("--steps", "2", "--method", "adrs", "--tva", "--eta", "0", "--preset", "always", "--run", "b")
    c = launch("--steps", "2", "--method", "adrs", "--tva", "--eta", "0.5", "--preset", "always", "--run", "c")
    assert all(torch.equal(value, weights(b, 2)[name]) for name, value in weights(a, 2).items())
    assert any(not torch.equal(value, weights(c, 2)[name]) for name, value in weights(a, 2).items())


def test_learning_rate_zero_changes_nothing(launch, policy):
    folder = launch("--steps", "2", "--lr", "0", "--run", "still")
    state = policy.model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in weights(folder, 2).items())


@pytest.mark.parametrize("flags", [("--method", "none"), ("--tva", "--tva_pool", "0.5", "--teacher", "ema")])
def test_a_resumed_run_equals_the_uninterrupted_one(launch, flags):
    whole = launch("--steps", "4", "--preset", "always", "--save_every", "2", *flags, "--run", "whole")
    part = launch("--steps", "2", "--preset", "always", *flags, "--run", "part")
    launch("--steps", "4", "--preset", "always", "--resume", *flags, "--run", "part")
    assert all(torch.equal(value, weights(part, 4)[name]) for name, value in weights(whole, 4).items())
    whole_log, part_log = lines(whole / "log.jsonl"), lines(part / "log.jsonl")
    assert [{k: v for k, v in row.items() if "val/" not in k} for row in part_log] == [
        {k: v for k, v in row.items() if "val/" not in k} for row in whole_log
    ]


def test_a_torn_or_changed_checkpoint_is_passed_over_and_named(launch, capsys):
    folder = launch("--steps", "4", "--save_every", "2")
    tensors = folder / "checkpoint-4" / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"x")
    launch("--steps", "4", "--resume")
    said = capsys.readouterr().out
    assert "checkpoint-4 is passed over: model.safetensors is missing or changed" in said
    assert "resumed from" in said and "checkpoint-2" in said


def test_a_run_that_exists_is_refused(launch):
    launch("--steps", "0")
    with pytest.raises(FileExistsError, match="--overwrite"):
        launch("--steps", "0")
    launch("--steps", "0", "--overwrite")
    for name in ("../out", "a/b/c", ".hidden", "a b"):
        with pytest.raises(ValueError, match="--run"):
            launch("--steps", "0", "--run", name)


@pytest.mark.parametrize("backbone", ["grpo", "gigpo"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs(launch, method, backbone):
    steps = 0 if method in EVALUATION_ONLY else 1
    folder = launch("--steps", str(steps), "--method", method, "--backbone", backbone)
    log = lines(folder / "log.jsonl")
    assert len(log) == steps + 1
    evals = lines(folder / "eval.jsonl")
    assert {row["skills"] for row in evals} == {"none", *(["prompt"] if method in SKILL_IN_PROMPT else [])}
    if steps:
        assert ("teacher/gap_mean" in log[1]) == (method in NEEDS_TEACHER)


SWITCHES = ["--skills bank", "--skill shuffled", "--placement raw_prefix", "--teacher frozen", "--score gap",
            "--level L1 --tva", "--mini_rows 5", "--lora 2", "--tva --tva_split median", "--join raw"]  # fmt: skip


@pytest.mark.parametrize("flags", SWITCHES)
def test_every_switch_runs(launch, flags):
    log = lines(launch("--steps", "1", "--preset", "always", *flags.split()) / "log.jsonl")
    assert log[1]["adrs/term_abs_mean"] > 0


def test_a_run_that_starts_from_an_adapter_keeps_a_copy_of_it_as_reference(launch):
    first = launch("--steps", "2", "--lora", "2", "--run", "first")
    adapter = str(first / "checkpoint-2")
    second = launch("--model", adapter, "--steps", "1", "--mini_rows", "0", "--run", "second")
    config = json.loads((second / "config.json").read_text())
    assert config["settings"]["lora"] == 2
    assert lines(second / "log.jsonl")[1]["actor/kl_loss"] == pytest.approx(0, abs=1e-9)  # not against the bare base
    moved = load_file(second / "checkpoint-1" / "adapter_model.safetensors")
    kept = load_file(first / "checkpoint-2" / "adapter_model.safetensors")
    assert moved.keys() == kept.keys() and any(not torch.equal(moved[name], kept[name]) for name in kept)
    with pytest.raises(ValueError, match=r"--lora 3: the adapter in .* has rank 2"):
        launch("--model", adapter, "--steps", "1", "--lora", "3", "--run", "third")


def test_methods_pay_for_no_pass_they_do_not_need(launch, monkeypatch):
    passes = []
    monkeypatch.setattr(module, "score", lambda *args: passes.append("score") or score(*args))
    monkeypatch.setattr(module, "SkillProvider", lambda *args: passes.append("skills"))
    one = ("--steps", "1", "--method", "none", "--mini_rows", "0", "--probe", "0")
    launch(*one, "--kl", "0")
    assert passes == []
    launch(*one, "--kl", "0.1", "--run", "two")
    assert passes == ["score"]


def test_adrs_reads_its_teacher_inside_the_window_and_where_episodes_are_saved(launch):
    window = ("--window_start", "0.2", "--window_stop", "0.4", "--eval_every", "4")
    log = lines(launch("--steps", "5", *window) / "log.jsonl")
    assert [row["step"] for row in log if "teacher/gap_mean" in row] == [2, 4, 5]
    assert [row["step"] for row in log if "adrs/term_abs_mean" in row] == [2]
    sdar = lines(launch("--steps", "3", "--method", "sdar", "--run", "sdar") / "log.jsonl")
    assert [row["step"] for row in sdar if "teacher/gap_mean" in row] == [1, 2, 3]


def test_a_signal_finishes_the_step_and_saves(launch, monkeypatch):
    monkeypatch.setattr(module.Stop, "agreed", lambda self, accelerator: signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped:
        launch("--steps", "5")
    assert stopped.value.code == 128 + signal.SIGTERM


def test_two_processes_give_the_advantages_and_weights_of_one(launch, tmp_path):
    flags = ("--steps", "2", "--tva", "--preset", "always", "--groups", "4", "--eta", "0.3", "--save_every", "1")
    one = launch(*flags, "--run", "one")
    PartialState._reset_state()  # the forked processes must not take over this one's
    AcceleratorState._reset_state()
    debug_launcher(launch, args=(*flags, "--run", "two"), num_processes=2)
    two = tmp_path / "results" / "two"
    assert json.loads((two / "config.json").read_text())["processes"] == 2
    far = torch.cat([((v - weights(two, 1)[k]).abs() > 1e-6).flatten() for k, v in weights(one, 1).items()])
    assert far.float().mean() < 1e-4  # Adam makes a whole step of a gradient that is float noise around zero
    a, b = lines(one / "log.jsonl")[1], lines(two / "log.jsonl")[1]
    same = ("tva/d_mean", "tva/gate_mean", "critic/advantages/max", "adrs/term_abs_mean", "actor/pg_loss")
    for key in (*same, "episode/success_rate"):
        assert b[key] == pytest.approx(a[key], abs=1e-5), key
    assert lines(one / "eval.jsonl")[0]["outcomes"] == lines(two / "eval.jsonl")[0]["outcomes"]


def test_gather_world_in_one_process_is_the_batch(policy, episodes):
    logps = {"old_logp": None, "ref_logp": None, "teacher_logp": episodes.sampler_logp}
    w, mine = gather_world(episodes, logps)
    assert mine == slice(0, len(episodes.steps)) and w.old_logp is None
    assert torch.equal(w.teacher_logp, episodes.sampler_logp) and w.anchors == [s.anchor for s in episodes.steps]


# ------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--env", "chess"], "--env chess: unknown, choose one of alfworld"),
        (["--method", "magic"], "--method magic: unknown"),
        (["--level", "L9"], "--level L9: unknown"),
        (["--group_size", "1"], "--group_size 1"),
        (["--fraction", "0"], "--fraction 0.0"),
        (["--tva", "--method", "sdar"], "--tva is a switch of --method adrs"),
        (["--resume"], "--resume: name the run"),
        (["--window_start", "0.9", "--window_stop", "0.1"], "--window_start"),
        (["--temperature", "0"], "--temperature 0.0"),
        (["--tva_pool", "0.9", "--backbone", "gigpo"], "--tva_pool"),
        (["--method", "vanilla", "--steps", "3"], "--method vanilla only evaluates"),
        (["--skills", "bank", "--skill", "general"], "--skills bank searches instead"),
        (["--preset", "mine"], "--preset mine: unknown"),
    ],
)
def test_bad_settings_name_the_flag(flags, complaint):
    with pytest.raises(ValueError) as error:
        parse(flags)
    assert complaint in str(error.value)


def test_abbreviations_and_unknown_flags_stop():
    for flags in (["--step", "3"], ["--tvaa"]):
        with pytest.raises(ValueError, match="not used"):
            parse(flags)


def test_presets_give_way_to_flags():
    assert parse(["--preset", "paper"]).join == "pre_whiten"
    assert parse(["--preset", "paper", "--join", "raw"]).join == "raw"
    assert parse(["--preset", "always"]).window_stop == 1.0
    paper = parse(["--preset", "paper", "--eta", "0.1"])
    assert (paper.eta, paper.window_stop) == (0.1, pytest.approx(70 / 150))
    assert resolve(paper, True, False, Toy()).eta == 0.1 and resolve(Settings(), True, False, Toy()).eta == 0.02
    assert resolve(Settings(), False, True, Toy()).window_start == pytest.approx(20 / 150)


def test_settings_from_a_file(tmp_path):
    (tmp_path / "s.yaml").write_text("env: search\nseed: 7\n")
    assert parse([str(tmp_path / "s.yaml")]).seed == 7
    (tmp_path / "s.json").write_text('{"env": "search", "typo": 1}')
    with pytest.raises(ValueError, match="typo"):
        parse([str(tmp_path / "s.json")])


def test_resolve_fills_every_hole_for_both_users():
    for small in (True, False):
        s = resolve(Settings(), small, cuda=False, domain=Toy())
        empty = {name for name, value in vars(s).items() if value is None}
        assert empty == {"model", "preset", "run", "tracker"}
        check(s)
    assert resolve(Settings(), False, True, Toy()).groups == 16 and resolve(Settings(), False, False, Toy()).groups == 2
    assert resolve(Settings(lora=8, max_turns=9), False, False, Toy()).lora == 8
    assert resolve(Settings(max_turns=9), False, False, Toy()).max_turns == 9
