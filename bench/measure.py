"""From commands to CPU seconds: contenders in processes of their own, one thread each, that take turns A B A B.

    bench/{trl, teacher, environments, scale} -> [measure] -> ratios with their spread

CPU time counts what a process computed, not what it waited for, so that other work on the machine disturbs it little;
what is left (caches, clock rate) falls on both contenders of a round alike, and the ratio is taken round by round. Left
out: starting a contender, which is its own business before its first turn.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
ONE_THREAD = dict.fromkeys(THREADS, "1") | {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}


def turns() -> Iterator[dict]:
    """The contender's side: a dict for every turn that it is given. What it writes into the dict is reported together
    with `cpu`, its CPU seconds from one `yield` to the next request."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries that print do not disturb the reports
    for _ in sys.stdin:
        told, start = {}, time.process_time()
        yield told
        out.write(json.dumps(told | {"cpu": time.process_time() - start}) + "\n")


class Contender:
    """A process that computes when it is asked. Raises RuntimeError with the end of its messages where it dies."""

    def __init__(self, command: list[str]):
        self.messages = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in `close`
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | ONE_THREAD, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.messages,
        )  # fmt: skip

    def turn(self) -> dict[str, float]:
        """What the process reports of one turn."""
        try:
            self.process.stdin.write("\n")
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.messages.seek(0)
            raise RuntimeError(f"{' '.join(self.process.args)} died:\n{self.messages.read()[-2000:]}")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()
        self.messages.close()


def module(*args: str) -> list[str]:
    """The command that runs a module of this repository."""
    return [sys.executable, "-m", *args]


def compete(commands: dict[str, list[str]], rounds: int, warm: int = 1) -> dict[str, list[dict]]:
    """The reports of `rounds` turns of every contender, in turn, after `warm` rounds that do not count."""
    contenders = {name: Contender(command) for name, command in commands.items()}
    reports: dict[str, list[dict]] = {name: [] for name in commands}
    try:
        for round in range(warm + rounds):
            for name, contender in contenders.items():
                report = contender.turn()
                if round >= warm:
                    reports[name].append(report)
    finally:
        for contender in contenders.values():
            contender.close()
    return reports


def spread(values: list[float], digits: int = 2) -> str:
    """Median and range: `0.48 [0.46, 0.51]`."""
    low, middle, high = (f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} [{low}, {high}]"


def ratio(ours: list[float], theirs: list[float], digits: int = 2) -> str:
    """Ours to theirs, round by round: median and range."""
    return spread([a / b for a, b in zip(ours, theirs, strict=True)], digits)
