"""A run that is killed and resumed equals the one that was not: every byte of its logs and checkpoints, and the next
rollout. A forked copy of this process trains on the toy domain and is stopped by SIGKILL, at random moments or inside a
save, an evaluation, a line of a log. Moments are counted in calls of Python functions, so that a failure repeats."""

import json
import os
import random
import signal
import sys
import traceback
from pathlib import Path

import pytest

import checkpoint
import record
import train
from policy import load_policy
from rollout import rollout, stream
from tests.toy import Toy, launcher, lines, toy_policy

FLAGS = ["--steps", "4", "--save_every", "1", "--eval_every", "2", "--preset", "always", "--mini_rows", "8",
         "--tva", "--tva_pool", "0.5", "--teacher", "ema"]  # fmt: skip


def forked(job) -> int:
    """Runs `job` in a copy of this process: its exit code, negative for the signal that ended it."""
    if (child := os.fork()) == 0:
        try:
            job()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def after(count: int):
    """Kills this process at the `count`-th call of a Python function from now on."""
    left = iter(range(count))
    sys.setprofile(lambda frame, event, arg: event == "call" and next(left, None) is None and die())


def at(place, name: str, count: int, die=die):
    """Kills this process where it calls `place.name` for the `count`-th time."""
    real, calls = getattr(place, name), iter(range(1, count))
    setattr(place, name, lambda *args, **kwargs: (die if next(calls, None) is None else real)(*args, **kwargs))


def tear(self, file: str, row: dict):
    """Half a line, and the end."""
    with (self.folder / file).open("ab") as out:
        out.write(json.dumps(row).encode()[:40])
    die()


POINTS = {
    "at the start": lambda: at(record.Run, "describe", 1),
    "in the first evaluation": lambda: at(train, "evaluate", 2),
    "in a later evaluation": lambda: at(train, "evaluate", 4),
    "in a line of a log": lambda: at(record.Run, "append", 30, tear),  # of step 3
    "in a save": lambda: at(checkpoint, "_sync", 15),
    "between seal and rename": lambda: at(Path, "rename", 3),
    "after the rename": lambda: at(checkpoint, "prune", 3),
    "in a rotation": lambda: at(os, "rmdir", 4),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(launch, a folder, the uninterrupted run, how many calls it makes)"""
    folder = tmp_path_factory.mktemp("kill")
    with pytest.MonkeyPatch.context() as patch:
        launch = launcher(folder, toy_policy(), patch)

        def count():
            calls = [0]
            sys.setprofile(lambda frame, event, arg: calls.__setitem__(0, calls[0] + (event == "call")))
            launch(*FLAGS)
            sys.setprofile(None)
            (folder / "calls").write_text(str(calls[0]))

        assert forked(count) == 0
        yield launch, folder, folder / "results" / "r", int((folder / "calls").read_text())


def outcome(run) -> dict[str, bytes]:
    """Everything that must be equal: all files but the run's seconds, its command and what was torn."""
    own = [run / name for name in ("timing.jsonl", "config.json", ".lock")]
    files = [path for path in sorted(run.rglob("*")) if path.is_file() and path.suffix != ".torn" and path not in own]
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in files}


def next_rollout(run) -> list:
    policy, domain = load_policy(str(run / "checkpoint-4")), Toy()
    starts = [(g, task, stream(0, 5, task, g)) for g, task in enumerate(domain.tasks("train")[:2])]
    episodes = rollout(policy, domain, starts, 1.0, 8)
    return [(step.response_ids, step.sampler_logp) for episode in episodes for step in episode.steps]


def resumed_equals_whole(world, name: str, *kills) -> None:
    launch, folder, whole, _ = world
    run = folder / "results" / name

    def go():
        launch(*FLAGS, "--run", name, "--resume")

    for kill in kills:
        assert forked(lambda kill=kill: (kill(), go())) == -signal.SIGKILL
    assert forked(go) == 0
    assert outcome(run) == outcome(whole)
    assert [row["step"] for row in lines(run / "timing.jsonl")] == [1, 2, 3, 4]
    assert next_rollout(run) == next_rollout(whole)


@pytest.mark.parametrize("point", POINTS)
def test_killed_inside(world, point):
    resumed_equals_whole(world, point.replace(" ", "-"), POINTS[point])


def test_killed_again_while_it_resumes(world):
    """Behind step 3's line of log.jsonl, in its line of timing.jsonl; then while the first of them is taken back."""
    torn = lambda: at(record.Run, "append", 31, tear)  # noqa: E731
    resumed_equals_whole(world, "again", torn, lambda: at(Path, "replace", 1), lambda: at(checkpoint, "restore", 1))
    fragment = (world[1] / "results" / "again" / "timing.jsonl.torn").read_bytes()
    assert fragment.startswith(b'{"step": ') and len(fragment) == 41


def moments(seed: int, count: int) -> list[float]:
    draw = random.Random(seed)
    return [draw.random() for _ in range(count)]


@pytest.mark.parametrize("moment", moments(0, 3))
def test_killed_at_a_random_moment(world, moment):
    resumed_equals_whole(world, f"moment-{moment}", lambda: after(int(moment * world[3])))


@pytest.mark.slow
@pytest.mark.parametrize("moment", moments(1, 20))
def test_killed_at_twenty_random_moments(world, moment):
    resumed_equals_whole(world, f"moment-{moment}", lambda: after(int(moment * world[3])))
