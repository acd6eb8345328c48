"""Parity: the built-in engine against ALFWorld's own, on random play. Needs requirements-alfworld.txt; minutes long."""

import importlib.util

import numpy as np
import pytest

from envs.alfworld import make_domain
from envs.alfworld.engine import Play
from envs.alfworld.textworld import Worker

GAMES, STEPS = 50, 40
INVALID = ("", "nonsense", "Look", "go to nowhere 9", "take mug 1", "examine", "examine cabinet 1", "examine mug 1")
absent = importlib.util.find_spec("textworld") is None or importlib.util.find_spec("alfworld") is None


@pytest.mark.slow
@pytest.mark.skipif(absent, reason="ALFWorld's engine is not installed (requirements-alfworld.txt)")
def test_random_play_is_the_same(shared):
    domain = make_domain(shared / "alfworld")
    tasks = [task for split in ("train", "seen", "unseen") for task in domain.tasks(split)]
    worker, differences, steps = Worker(), [], 0
    for number, task in enumerate(tasks[:: len(tasks) // GAMES][:GAMES]):
        rng = np.random.default_rng(number)
        theirs, ours = worker.start(task), Play(task.payload.game())
        plan = list(ours.game.walkthrough) if number % 2 else []
        played: list[str] = []
        while True:
            if (theirs.observation, theirs.admissible, theirs.won) != (ours.observation, ours.admissible, ours.won):
                differences.append((task.id, played[-3:], theirs.observation, ours.observation))
            if len(played) == STEPS:
                break
            played.append(_choose(ours.admissible, plan, rng))
            theirs.step(played[-1])
            ours.step(played[-1])
        steps += len(played)
    worker.close()
    print(f"{GAMES} games, {steps} steps, {len(differences)} differences")
    assert not differences


def _choose(admissible: tuple[str, ...], plan: list[str], rng: np.random.Generator) -> str:
    """The shipped plan, anything that is possible, rather not walking, or something impossible."""
    draw = rng.random()
    if draw < 0.1:
        return str(rng.choice(INVALID))
    if plan and draw < 0.5:
        return plan.pop(0)
    local = [command for command in admissible if not command.startswith("go to ")]
    return str(rng.choice(local if draw < 0.8 else admissible))


@pytest.mark.skipif(not absent, reason="ALFWorld's engine is installed")
def test_what_is_missing_is_said():
    with pytest.raises(ModuleNotFoundError, match=r"alfworld and textworld not installed.*requirements-alfworld"):
        Worker()


@pytest.mark.skipif(absent, reason="ALFWorld's engine is not installed (requirements-alfworld.txt)")
def test_generated_games_have_no_pddl():
    worker = Worker()
    with pytest.raises(ValueError, match="is generated"):
        worker.start(make_domain().tasks("seen")[0])
    worker.close()
