"""From `Run`s to `Group`s, the runs that differ in nothing but the seed, and to what each of them reached.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

A group has a label (a method on a backbone), a variant (what else tells it from groups of that label), and final,
last-3 and best evaluations. Numbers of different panels never meet: `one_panel` stops the program. Left out:
intervals and tests (stats.py).
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from analysis.logs import HEADLINE, Eval, LogError, Run

NAMES = {  # --method, as tables print it
    "none": "",
    "adrs": "ADRS",
    "sdar": "SDAR",
    "rlsd": "RLSD",
    "opsd": "OPSD",
    "grpo_opsd": "OPSD",
    "skill_sd": "Skill-SD",
    "skill_grpo": "Skill-GRPO",
    "skill_prompt": "Skill-Prompt",
    "vanilla": "Vanilla",
}
BACKBONES = {"grpo": "GRPO", "gigpo": "GiGPO"}
ORDER = (
    "Vanilla", "Skill-Prompt*", "OPSD", "GRPO", "Skill-GRPO", "Skill-GRPO*", "GRPO+OPSD", "Skill-SD", "RLSD",
    "GiGPO", "SDAR", "GiGPO+SDAR", "ADRS", "ADRS+TVA", "GiGPO+ADRS", "GiGPO+ADRS+TVA",
)  # fmt: skip
# Settings in which the runs of a group may differ: they name or place a run, or share out its work.
NOT_A_SETTING = {
    "seed", "run", "results", "resume", "overwrite", "dry_run", "threads", "tracker", "save_every", "keep", "episodes",
    "micro_tokens",
}  # fmt: skip
WHERE = ("final", "last-3", "best")


def label(settings: dict) -> str:
    """What a table calls a method: GRPO, SDAR, ADRS, ADRS+TVA, GiGPO+ADRS, ... ADRS alone means without a gate."""
    method, backbone = str(settings.get("method", "none")), str(settings.get("backbone", "grpo"))
    name, on = NAMES.get(method, method), BACKBONES.get(backbone, backbone)
    if method == "adrs" and settings.get("tva"):
        name += "+TVA"
    if not name:
        return on
    return f"{on}+{name}" if backbone != "grpo" or method == "grpo_opsd" else name


@dataclass(frozen=True)
class Group:
    """Runs of the same settings, by seed. `skills` "prompt": evaluated with skills in the prompt; starred."""

    env: str
    label: str
    variant: str
    settings: dict  # without those of NOT_A_SETTING
    runs: tuple[Run, ...]
    skills: str = "none"

    @property
    def name(self) -> str:
        return f"{self.label} {self.variant}".strip()

    @property
    def split(self) -> str:
        """The panel that its runs are evaluated on."""
        return str(self.settings.get("eval_split", "unseen"))

    @property
    def seeds(self) -> str:
        if not self.runs[0].ours:
            return "1 run"
        return f"seed{'s' * (len(self.runs) > 1)} {', '.join(str(run.settings.get('seed')) for run in self.runs)}"

    @property
    def partial(self) -> list[str]:
        return [run.partial for run in self.runs if run.partial]

    def evals(self, temperature: float = HEADLINE) -> list[list[Eval]]:
        """Each run's evaluations, by step."""
        return [run.on_panel(temperature, self.skills) for run in self.runs]

    def pick(self, where: str, temperature: float = HEADLINE) -> list[list[Eval]]:
        """Each run's evaluations that make up final (the last), last-3 (the last three) or best (the highest, the
        earliest of equals: chosen on the panel that it is reported on, hence optimistic). [] where one has too few."""
        chosen = [_pick(evals, where) for evals in self.evals(temperature)]
        return chosen if all(chosen) else []


def _pick(evals: list[Eval], where: str) -> list[Eval]:
    if where == "final":
        return evals[-1:]
    if where == "last-3":
        return evals[-3:] if len(evals) >= 3 else []
    return [max(evals, key=lambda entry: entry.success)] if evals else []


def per_task(chosen: list[list[Eval]], key: str = "outcomes") -> np.ndarray | None:
    """The mean `outcomes` (or `scores`) of each run's chosen evaluations on each task, [runs, n]; None where a log
    gives rates only."""
    if any(getattr(entry, key) is None for evals in chosen for entry in evals):
        return None
    return np.array([np.mean([getattr(entry, key) for entry in evals], axis=0) for evals in chosen])


def groups(runs: Iterable[Run]) -> list[Group]:
    """The groups of some runs, by environment and in the order of the paper's Table 2.

    Raises LogError where two runs have the same settings and seed: one of them would count twice.
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_text(_shared(run)) if run.ours else str(run.path), []).append(run)
    classes: dict[tuple[str, str], list[list[Run]]] = {}
    for members in found.values():
        members.sort(key=lambda run: (int(run.settings.get("seed") or 0), str(run.path)))
        for one, other in itertools.pairwise(members):
            if one.settings.get("seed") == other.settings.get("seed"):
                raise LogError(f"{one.path} and {other.path} have the same settings and seed: remove one of them")
        settings = members[0].settings
        classes.setdefault((str(settings.get("env", "unknown")), label(settings)), []).append(members)
    out = []
    for (env, name), several in classes.items():
        variants = _variants([_shared(members[0]) for members in several])
        for members, variant in zip(several, variants, strict=True):
            if not members[0].ours and len(several) > 1:
                variant = members[0].name
            kinds = {entry.skills for run in members for entry in run.evals} or {"none"}
            for skills in sorted(kinds):
                if skills == "none" and members[0].settings.get("method") == "skill_prompt":
                    continue  # the untrained policy without skills: that is Vanilla
                star = "*" if skills == "prompt" else ""
                out.append(Group(env, name + star, variant, _shared(members[0]), tuple(members), skills))
    return sorted(out, key=_place)


def _shared(run: Run) -> dict:
    return {key: value for key, value in run.settings.items() if key not in NOT_A_SETTING}


def _text(value) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _variants(several: list[dict]) -> list[str]:
    """What tells these settings apart, as text. With one or two differing settings each is named; with more (an
    ablation) only those that are not at their most common value, and "" is the reference. A preset stands for other
    settings: it is not named itself, and where some have none, those give the common values."""
    keys = sorted(set().union(*several) - {"preset"})
    differing = [key for key in keys if len({_text(settings.get(key)) for settings in several}) > 1]
    plain = [settings for settings in several if settings.get("preset") is None] or several
    common = {key: Counter(_text(settings.get(key)) for settings in plain).most_common(1)[0][0] for key in differing}
    out = []
    for settings in several:
        named = [key for key in differing if len(differing) <= 2 or _text(settings.get(key)) != common[key]]
        text = ", ".join(f"{key}={settings.get(key)}" for key in named)
        out.append(text.replace("window_start=0.0, window_stop=1.0", "every step"))
    return out


def _place(group: Group) -> tuple:
    known = ORDER.index(group.label) if group.label in ORDER else len(ORDER)
    numbers = [value for _, value in sorted(group.settings.items()) if isinstance(value, int | float)]
    return group.env, known, group.label, numbers if group.variant else [], group.variant, group.runs[0].name


def one_panel(members: Iterable[Group], temperature: float = HEADLINE) -> Eval | None:
    """Any evaluation of these groups, after checking that all were made on the panel of that one. Raises LogError."""
    first = None
    for run, entry in (
        (r, e) for g in members for r, evals in zip(g.runs, g.evals(temperature), strict=True) for e in evals
    ):
        if first is None:
            first = run, entry
        elif (entry.digest, entry.n, entry.types) != (first[1].digest, first[1].n, first[1].types) and run.ours:
            raise LogError(
                f"{first[0].path} and {run.path} were evaluated on different panels ({first[1].digest}, {first[1].n} "
                f"tasks; {entry.digest}, {entry.n} tasks): their success cannot be compared. Evaluate both on one panel"
            )
    return first[1] if first else None
