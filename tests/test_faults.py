"""What fails around a run: games that raise or hang, numbers that are not finite, torn logs, other data on resuming, a
process that dies, a silence. Each ends in one message, and in nothing lost."""

import os
import resource
import runpy
import signal
import socket
import sys
import time
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState

import record
import rollout as rollout_module
import train
from evaluate import result_row, table
from record import Clock, Run, Stop, episode_metrics, mend, watch
from rollout import collate, rollout, stream
from settings import AT_LEAST_ONE, Settings, parse, resolve
from tests.conftest import ROOT
from tests.test_kill import at, forked
from tests.toy import Toy, ToyEnv, launcher, lines
from update import update

# ------------------------------------------------------------------------------------------- games that fail


class Broken(ToyEnv):
    """Raises in its second turn."""

    def step(self, response: str):
        if self.turn == 1:
            raise KeyError("gone")
        return super().step(response)


class Stuck(ToyEnv):
    def step(self, response: str):
        while True:
            time.sleep(0.01)


class Dead(ToyEnv):
    def step(self, response: str):
        return 1 / 0


class Fragile(Toy):
    """The toy domain, some of whose environments fail: `kinds` in the order in which they are made, then healthy."""

    def __init__(self, *kinds):
        super().__init__()
        self.kinds = iter(kinds)

    def make(self):
        return next(self.kinds, ToyEnv)(self.max_turns)

    def player(self, kind, rng):
        return super().player("expert", rng)  # wins in its first turn, so that no scripted episode fails


def played(policy, domain) -> list:
    """Two groups of three episodes."""
    tasks = domain.tasks("train")[:2]
    starts = [(g, task, stream(0, 1, task, 3 * g + k)) for g, task in enumerate(tasks) for k in range(3)]
    return rollout(policy, domain, starts, 1.0, 8)


def ids(episode) -> list[list[int]]:
    return [step.response_ids for step in episode.steps]


def test_a_game_that_raises_or_hangs_ends_its_episode_alone(policy, monkeypatch):
    monkeypatch.setattr(rollout_module, "ENV_SECONDS", 1.0)
    healthy, fragile = played(policy, Toy()), played(policy, Fragile(ToyEnv, Broken, ToyEnv, Stuck))
    assert fragile[1].ended == "error: KeyError: 'gone'" and len(fragile[1].steps) == 2
    assert fragile[3].ended == "error: TimeoutError: no answer within 1 s" and len(fragile[3].steps) == 1
    for k, (episode, twin) in enumerate(zip(fragile, healthy, strict=True)):
        assert episode.failed == (k in (1, 3)) and (episode.failed or len(episode.steps) == len(twin.steps))
        assert ids(episode) == ids(twin)[: len(episode.steps)]
    last = fragile[3].steps[-1]
    assert (last.reward, last.valid, fragile[3].won, fragile[3].score) == (0.0, True, False, 0.0)
    batch = collate(fragile, 0)
    assert [int(batch.group[batch.episode == k][0]) for k in range(6)] == [0, 0, 0, 1, 1, 1]  # both groups are whole
    assert episode_metrics(fragile, batch)["episode/error_ratio"] == pytest.approx(2 / 6)
    scripted = {"expert": 1.0, "random": 0.5}
    row = result_row([fragile[1], fragile[3]], "train", 1.0, scripted)
    assert row["errors"] == 2 and "2 episodes were ended by their environment" in table(row)
    assert "errors" not in result_row([healthy[1], healthy[3]], "train", 1.0, scripted)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_run_goes_on_and_tells(policy, tmp_path, monkeypatch, capsys):
    scripted, evaluated = [ToyEnv] * 12, [ToyEnv] * 12
    domain = Fragile(*scripted, *evaluated, *[ToyEnv, Broken, Broken, ToyEnv, Broken])
    log = lines(launcher(tmp_path, policy, monkeypatch, lambda: domain)("--steps", "1", "--probe", "0") / "log.jsonl")
    told = [line for line in capsys.readouterr().err.splitlines() if line.endswith("error: KeyError: 'gone'")]
    assert log[1]["episode/error_ratio"] == pytest.approx(len(told) / 9) and 1 <= len(told) <= 3
    assert all(line.startswith("step 1, task train/") for line in told)


def test_a_run_stops_where_no_game_works(policy, tmp_path, monkeypatch):
    domain = Fragile(*[ToyEnv] * 24, *[Dead] * 9)
    with pytest.raises(RuntimeError, match="step 1: no environment works, the first: error: ZeroDivisionError"):
        launcher(tmp_path, policy, monkeypatch, lambda: domain)("--steps", "1", "--probe", "0")


# ------------------------------------------------------------------------------------ numbers that are not finite


def updated(policy, adv_of_row: dict, **changes):
    """One update without KL and entropy, whose advantages are 1 but in some rows: (the gradients' effect, metrics)."""
    plain = Settings(steps=1, kl=0.0, entropy=0.0, mini_rows=0, micro_tokens=1, **changes)
    s = resolve(plain, small=True, cuda=False, domain=Toy())
    batch = replace(collate(played(policy, Toy()), 0), training_step=7)
    adv = torch.ones(batch.rows.mask.shape)
    for row, value in adv_of_row.items():
        adv[row] = value
    before = [p.detach().clone() for p in policy.model.parameters()]
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.1)
    logps = {"old_logp": None, "ref_logp": None, "teacher_logp": None}
    try:
        metrics = update(Accelerator(cpu=True), policy.model, optimizer, s, batch, logps, adv)
        return [p.detach() - old for p, old in zip(policy.model.parameters(), before, strict=True)], metrics
    finally:
        with torch.no_grad():
            for parameter, old in zip(policy.model.parameters(), before, strict=True):
                parameter.copy_(old)


def test_the_message_names_step_row_and_episode(policy):
    batch = collate(played(policy, Toy()), 0)
    place = f"turn {batch.turn[3]} of episode {batch.episode[3]}, task {batch.tasks[3].id}"
    for value in (float("nan"), float("inf")):
        with pytest.raises(FloatingPointError, match=rf"step 7: the loss is (nan|-inf) in rows 3 \({place}\); nothing"):
            updated(policy, {3: value})


def test_a_skipped_micro_batch_adds_nothing_and_is_counted(policy):
    without, plain = updated(policy, {3: 0.0})
    skipped, metrics = updated(policy, {3: float("nan")}, skip_nonfinite=True)
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(skipped, without, strict=True))
    assert any(change.abs().max() > 0 for change in skipped)
    assert metrics["actor/skipped"] == 1 and "actor/skipped" not in plain
    assert metrics["actor/pg_loss"] == pytest.approx(plain["actor/pg_loss"], abs=1e-6)


def test_most_of_them_are_too_many(policy):
    rows = len(collate(played(policy, Toy()), 0).steps)
    updated(policy, dict.fromkeys(range(rows // 2), float("nan")), skip_nonfinite=True)
    with pytest.raises(FloatingPointError, match="step 7: the loss is nan"):
        updated(policy, dict.fromkeys(range(rows // 2 + 1), float("nan")), skip_nonfinite=True)


def test_a_run_stops_at_a_log_prob_that_is_not_finite_and_keeps_its_checkpoint(launch, tmp_path, monkeypatch):
    launch("--steps", "1")
    monkeypatch.setattr(train, "score", lambda model, rows, *args: torch.full(rows.response_ids.shape, torch.nan))
    with pytest.raises(FloatingPointError, match=r"step 2: the old_logp is nan in rows 0, 1.*task train/"):
        launch("--steps", "3", "--resume", "--skip_nonfinite")
    folder = tmp_path / "results" / "r"
    assert [row["step"] for row in lines(folder / "log.jsonl")] == [0, 1]
    assert [path.name for path in folder.glob("checkpoint-*")] == ["checkpoint-1"]


def test_a_policy_of_damaged_weights_does_not_play(policy, domain):
    with torch.no_grad():
        policy.model.model.norm.weight[0] = float("nan")
    with pytest.raises(FloatingPointError, match="its weights are damaged"):
        played(policy, domain)


# ----------------------------------------------------------------------------------------------- logs and resuming


def test_a_torn_line_is_cut_off_and_kept(tmp_path):
    file = tmp_path / "log.jsonl"
    for whole, fragment in ((b"", b'{"st'), (b'{"step": 0}\n', b'{"step": 1, "x'), (b'{"step": 0}\n', b"\0\0\0")):
        file.write_bytes(whole + fragment)
        mend(file)
        assert file.read_bytes() == whole
        mend(file)
        assert file.read_bytes() == whole
    assert (tmp_path / "log.jsonl.torn").read_bytes() == b'{"st\n{"step": 1, "x\n\0\0\0\n'


@pytest.fixture
def run(tmp_path):
    with Run(tmp_path, os.open(tmp_path / ".lock", os.O_CREAT | os.O_RDWR)) as run:
        yield run


def test_lines_are_taken_back_to_a_step_and_bad_ones_named(run):
    for step in range(4):
        run.append("log.jsonl", {"step": step, "text": "\ud800 \r \u2028"})
    log = run.folder / "log.jsonl"
    run.rewind(1)
    assert [row["step"] for row in lines(log)] == [0, 1]
    assert [row["step"] for row in lines(run.folder / "log.jsonl.torn")] == [2, 3]  # nothing is lost
    for bad in ("not json", "[1]", "{}", '{"step": "two"}'):
        log.write_text(f'{{"step": 0}}\n{bad}\n{{"step": 1}}\n')
        with pytest.raises(ValueError, match=r"log.jsonl, line 2: no line of a run"):
            run.rewind(0)
        assert len(log.read_text().splitlines()) == 3


def test_a_full_disk_is_named_and_tears_at_most_the_last_line(run):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (90, limit[1]))  # of a file of this process, in bytes
    try:
        with pytest.raises(OSError, match=r"log.jsonl: not written .*; make room and go on with --resume"):
            for step in range(9):
                run.append("log.jsonl", {"step": step, "some": "text"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not (run.folder / "log.jsonl").read_bytes().endswith(b"\n")
    mend(run.folder / "log.jsonl")
    assert [row["step"] for row in lines(run.folder / "log.jsonl")] == [0, 1, 2]


def test_a_metric_that_is_not_finite_is_named(run):
    with pytest.raises(FloatingPointError, match="step 3: loss not finite"):
        run.append("log.jsonl", {"step": 3, "loss": float("nan"), "fine": 1.0})
    assert not (run.folder / "log.jsonl").exists()


def test_a_resumed_run_tells_what_is_new_and_refuses_other_tasks(launch, capsys, tmp_path):
    launch("--steps", "1")
    launch("--steps", "2", "--lr", "0.02", "--resume")
    told = capsys.readouterr().out
    assert "--lr was 0.01, is 0.02" in told and "--steps was 1, is 2" in told and "--seed was" not in told
    with pytest.raises(ValueError, match=r"config.json: the run's tasks were .*'n': 12.* now they are .*'n': 6"):
        launch("--steps", "3", "--fraction", "0.5", "--resume")
    (tmp_path / "results" / "r" / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json: not the config of a run"):
        launch("--steps", "3", "--resume")


def test_lora_starts_the_same_from_the_same_seed(launch):
    runs = [launch("--steps", "1", "--lora", "2", "--run", name, "--seed", name[1]) for name in ("a0", "b0", "c1")]
    a, b, c = ((folder / "checkpoint-1" / "adapter_model.safetensors").read_bytes() for folder in runs)
    assert a == b != c


@pytest.mark.parametrize("name", AT_LEAST_ONE)
def test_counts_begin_at_one(name):
    with pytest.raises(ValueError, match=f"--{name} 0: give at least 1"):
        parse([f"--{name}", "0"])


# ------------------------------------------------------------------------------------------------ silence and death


def test_a_silence_prints_the_stacks(capfd):
    watch(0.05)
    time.sleep(0.3)
    watch(0)
    told = capfd.readouterr().err
    assert "Timeout" in told and "test_a_silence_prints_the_stacks" in told


def test_every_phase_calms_the_watchdog(launch, monkeypatch):
    calls = []
    monkeypatch.setattr(record.faulthandler, "dump_traceback_later", lambda seconds, **_: calls.append(seconds))
    monkeypatch.setattr(record.faulthandler, "cancel_dump_traceback_later", lambda: calls.append("calm"))
    launch("--steps", "1", "--silence", "7")
    assert set(calls) == {7, "calm"} and calls[-1] == "calm" and calls.count(7) >= 5
    calls.clear()
    Clock().lap("rollout")
    assert calls == ["calm"]


def test_a_second_signal_ends_at_once():
    def signalled(times: int):
        stop = Stop()
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal == signal.SIGTERM

    assert forked(lambda: signalled(1)) == 0 and forked(lambda: signalled(2)) == -signal.SIGTERM


def test_where_one_process_dies_the_other_stops(launch):
    PartialState._reset_state()
    AcceleratorState._reset_state()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def work(rank: int):
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}  # fmt: skip
        if rank == 1:
            at(train, "collate", 2)
        launch("--steps", "3", "--method", "none")

    begun, other = time.monotonic(), os.fork()
    if other == 0:
        os._exit(forked(lambda: work(1)) != -signal.SIGKILL)
    assert forked(lambda: work(0)) == 1
    assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 0
    assert time.monotonic() - begun < 120


def test_the_command_ends_with_one_line(monkeypatch):
    keep, model = ("--keep", "0", None, "ValueError: --keep 0: give"), ("--model", "/no", "1", "process 1: FileNot")
    for flag, value, rank, line in (keep, model):
        monkeypatch.setattr(sys, "argv", ["train.py", flag, value])
        monkeypatch.setenv("RANK", rank) if rank else monkeypatch.delenv("RANK", raising=False)
        with pytest.raises(SystemExit) as stopped:
            runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
        assert stopped.value.code.startswith(line)  # text: it is printed and the exit code is 1
