"""Environments against their originals: CPU time of a load and a step, of a query, and memory of an environment.

    python -m bench.environments [--engine PYTHON]

ALFWorld's games, random play, against its own engine, which `--engine` finds: the python of an environment with
requirements-alfworld.txt. WebShop's random play against 28 steps a second, what the original did on hardware like this
(webshop.md 5). Both retrievers against rank_bm25 on the same tokens. What is missing is skipped with a reason. The
folder of real data is $ADRS_TEST_DATA, else ../shared.
"""

import argparse
import importlib.util
import os
import random
import time
import tracemalloc
from pathlib import Path
from statistics import median

import envs
from bench.measure import ROOT, compete, module, ratio, spread, turns
from envs.base import Env, Task

WEBSHOP_STEPS = 28.0  # of the original, a second and process
STEPS, GAMES = 40, 12
QUERIES = 200


def data() -> Path:
    """The folder of real data."""
    return Path(os.environ.get("ADRS_TEST_DATA", ROOT.parent / "shared"))


def games() -> list[Task]:
    """A few real games of ALFWorld, spread over the training split."""
    tasks = envs.load("alfworld", data=str(data() / "alfworld")).tasks("train")
    return tasks[:: len(tasks) // GAMES][:GAMES]


class Engine:
    """ALFWorld's own engine in this process, with the `start` and `step` of ours."""

    def __init__(self):
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs.pddl import PddlEnv

        wanted = textworld.EnvInfos(admissible_commands=True, feedback=True, won=True)
        self.env = AlfredDemangler(PddlEnv(wanted))

    def start(self, game: dict) -> list[str]:
        self.env.load(game)
        return self.env.reset().admissible_commands

    def step(self, command: str) -> list[str]:
        return self.env.step(command)[0].admissible_commands


class Native:
    """Our engine under the same two calls."""

    def start(self, task: Task) -> tuple[str, ...]:
        from envs.alfworld import start_native

        self.play = start_native(task)
        return self.play.admissible

    def step(self, command: str) -> tuple[str, ...]:
        self.play.step(command)
        return self.play.admissible


def play_alfworld(who: str) -> None:
    """A contender: a turn loads the next game and plays random admissible commands; `load` and `step` in CPU-s."""
    tasks = games()
    if who == "engine":
        from envs.alfworld.textworld import _game

        engine, made = Engine(), [_game(task.payload) for task in tasks]
    else:
        engine, made = Native(), tasks
    for number, told in enumerate(turns()):
        rng, start = random.Random(number), time.process_time()
        admissible = engine.start(made[number % GAMES])
        told["load"], start = time.process_time() - start, time.process_time()
        for _ in range(STEPS):
            admissible = engine.step(rng.choice(sorted(admissible)))
        told["step"] = (time.process_time() - start) / STEPS


def alfworld(engine: str | None, rounds: int) -> list[str]:
    """The lines about ALFWorld's engine."""
    if not (data() / "alfworld").is_dir():
        return [f"alfworld: skipped, no games at {data()}/alfworld"]
    commands = {"native": module("bench.environments", "--play", "native")}
    if engine:
        commands["engine"] = [engine, *module("bench.environments", "--play", "engine")[1:]]
    reports = compete(commands, rounds)
    ms = {name: {key: [1e3 * r[key] for r in reports[name]] for key in ("load", "step")} for name in commands}
    lines = [f"alfworld {key}: native {spread(ms['native'][key], 3)} ms" for key in ("load", "step")]
    if not engine:
        return [*lines, "alfworld: no engine to compare with (--engine PYTHON)"]
    return [f"{line}, engine {spread(ms['engine'][key], 1)} ms: "
            f"{ratio(ms['engine'][key], ms['native'][key], 0)} times as fast"
            for line, key in zip(lines, ("load", "step"), strict=True)]  # fmt: skip


def wander(env: Env, task: Task, rng: random.Random, steps: int) -> None:
    """Random admissible actions, a new episode after each end; a query is the goal's words."""
    _, info = env.reset(options={"task": task})
    for _ in range(steps):
        action = rng.choice(info["admissible"] or (f"<search>{task.goal}</search>",)).replace("<your query>", task.goal)
        _, _, terminated, truncated, info = env.step(f"<think>.</think><action>{action}</action>")
        if terminated or truncated:
            _, info = env.reset(options={"task": task})


def webshop(rounds: int) -> str:
    """The line about WebShop's steps."""
    folder = data() / "webshop"
    options = {"world": "data", "data": str(folder), "mode": "parity"} if folder.is_dir() else {"world": "generated"}
    domain = envs.load("webshop", **options)
    tasks, env, rates = domain.tasks("train"), domain.make(), []
    for round in range(1 + rounds):
        rng, start = random.Random(round), time.process_time()
        for task in rng.sample(tasks, 20):
            wander(env, task, rng, 50)
        rates.append(1000 / (time.process_time() - start))
    faster = [rate / WEBSHOP_STEPS for rate in rates[1:]]
    return f"webshop ({options['world']}): {spread(rates[1:], 0)} steps/s, {spread(faster, 0)} times the original's 28"


def retrieval(rounds: int) -> list[str]:
    """The lines about both retrievers against rank_bm25, same documents, same tokens, same queries."""
    if importlib.util.find_spec("rank_bm25") is None:
        return ["retrieval: skipped, no rank_bm25 (requirements-bench.txt)"]
    from rank_bm25 import BM25Okapi

    from envs.search.bm25 import tokenize
    from envs.webshop.search import HITS, Index, analyse

    shop, search = envs.load("webshop", world="generated"), envs.load("search")
    texts = [product.search_text() for product in (shop.catalogue[i] for i in range(len(shop.catalogue)))]
    index = Index.build(texts, [str(i) for i in range(len(texts))])
    passages = search.retriever.passages
    cases = {
        "webshop": (shop.tasks("train"), [[*analyse(text)] for text in texts], analyse,
                    lambda queries: [index.search(query, HITS) for query in queries]),
        "search": (search.tasks("train"), [tokenize(f"{p.title} {p.title} {p.text}") for p in passages], tokenize,
                   lambda queries: search.retriever.batch(queries, 3)),
    }  # fmt: skip
    lines = []
    for name, (tasks, documents, words, ours) in cases.items():
        queries, theirs = [task.goal for task in tasks[:QUERIES]], BM25Okapi(documents, k1=0.9, b=0.4)
        times: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(rounds):
            start = time.process_time()
            ours(queries)
            times["ours"].append((time.process_time() - start) / len(queries))
            start = time.process_time()
            for query in queries:
                theirs.get_top_n([*words(query)], range(len(documents)), n=HITS)
            times["theirs"].append((time.process_time() - start) / len(queries))
        lines.append(
            f"retrieval {name}: {len(documents)} documents, {1e3 * median(times['ours']):.2f} ms a query, rank_bm25 "
            f"{1e3 * median(times['theirs']):.2f} ms: {ratio(times['theirs'], times['ours'], 0)} times as fast"
        )
    return lines


def memory(name: str, count: int = 128, **options) -> str:
    """What `count` environments hold beyond their domain, each two turns into an episode of a task of its own."""
    domain = envs.load(name, **options)
    tasks, held = domain.tasks("train"), []
    tracemalloc.start()
    for number in range(count):
        env, task = domain.make(), tasks[number * len(tasks) // count]
        wander(env, task, random.Random(number), 2)
        held.append(env)
    bytes_held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return f"memory {name} ({Path(domain.source).name}): {bytes_held / 1e3 / len(held):.1f} KB an environment"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--engine", metavar="PYTHON", help="a python that has ALFWorld's own engine")
    parser.add_argument("--play", choices=("native", "engine"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.play:
        play_alfworld(args.play)
        return
    for line in alfworld(args.engine, args.rounds):
        print(line, flush=True)
    print(webshop(args.rounds), *retrieval(min(args.rounds, 5)), sep="\n", flush=True)
    real = {name: {"data": str(data() / name)} for name in ("alfworld", "webshop") if (data() / name).is_dir()}
    for name in envs.NAMES:
        print(memory(name, **real.get(name, {})), flush=True)


if __name__ == "__main__":
    main()
