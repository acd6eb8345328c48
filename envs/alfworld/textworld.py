"""A second opinion: the same games through ALFWorld's own engine, where `requirements-alfworld.txt` is installed.

    [envs/alfworld/textworld] -> the Env -> rollout -> ...

It is hundreds of times slower than engine.py, keeps global state and leaks memory, so every environment gets a
process of its own. It is the oracle of the parity test. Left out: the expert, which needs engine.py's state.
Source: alfworld.md 1 and 4.
"""

import importlib.util
import json
import lzma
import multiprocessing
import zlib
from multiprocessing.connection import Connection

from envs.alfworld.games import Entry
from envs.base import Task


class Worker:
    """One engine in one process. After `start` it has the attributes and the `step` of engine.py's `Play`."""

    def __init__(self):
        if missing := [name for name in ("alfworld", "textworld") if importlib.util.find_spec(name) is None]:
            raise ModuleNotFoundError(
                f"backend textworld: {' and '.join(missing)} not installed; see requirements-alfworld.txt, or use the "
                "built-in engine"
            )
        context = multiprocessing.get_context("spawn")
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end,), daemon=True)
        self._process.start()
        far_end.close()

    def start(self, task: Task) -> "Worker":
        """Loads a real game and returns itself. Raises ValueError for a generated one, which has no PDDL text."""
        if not isinstance(task.payload, Entry):
            raise ValueError(f"{task.id} is generated: the textworld backend plays real games only (ALFWORLD_DATA)")
        self._ask(_game(task.payload))
        return self

    def step(self, command: str) -> tuple[str, int, bool]:
        self._ask(command)
        return self.observation, int(self.won), self.won

    def close(self) -> None:
        self._pipe.close()
        self._process.join(timeout=5)

    def _ask(self, message: dict | str) -> None:
        self._pipe.send(message)
        self.observation, self.admissible, self.won = self._pipe.recv()


def _game(entry: Entry) -> dict:
    """The game as its file has it; a line of the packed corpus is completed by what the corpus says once."""
    if not entry.packed:
        return json.loads(entry.file.read_bytes())
    with lzma.open(entry.file, "rb") as lines:
        head = json.loads(next(lines))
    grammar = head["grammar"].replace("UNKNOWN GOAL.", entry.goal)
    return head | json.loads(zlib.decompress(entry.packed)) | {"grammar": grammar}


def _serve(pipe: Connection) -> None:
    """The process: a game (a dict) starts it, a text is a command; the answer is observation, admissible, won."""
    import mementos.core
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs.pddl import PddlEnv

    wanted = textworld.EnvInfos(admissible_commands=True, feedback=True, won=True)
    env = AlfredDemangler(PddlEnv(wanted))
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        if isinstance(message, dict):
            mementos.core._memento_cache.clear()  # it keeps every proposition of every game otherwise
            env.load(message)
            state = env.reset()
        else:
            state, _, _ = env.step(message)
        pipe.send((state.feedback, tuple(state.admissible_commands), state.won))
