"""From the saved episodes of one run, or two, to one HTML file that shows what every token was paid.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

The file holds its data, its style and its script, loads nothing, and says so to the browser: the content security
policy allows this one style and this one script, by hash. The texts in it are hostile until proven otherwise: they
travel as JSON in which no tag can begin, and enter the page as text nodes (credit.js). Left out: all of the drawing,
which is in credit.html, credit.css and credit.js.
"""

import base64
import hashlib
import json
from pathlib import Path

import numpy as np

from analysis.groups import label
from analysis.logs import LogError, Run, read_episodes, read_run
from analysis.tokens import CATEGORIES, categories

HERE = Path(__file__).parent
EPISODES = 60  # of a run on a page; more are thinned out evenly, and the page says so


def _turn(turn: dict) -> dict:
    """A turn as the script reads it: numbers to 4 decimals, categories as indices."""
    kinds = categories(str(turn.get("response", "")), turn["tokens"], turn.get("admissible") or [])
    numbers = {
        name: None if turn.get(key) is None else [round(float(value), 4) for value in turn[key]]
        for name, key in (("adv", "adv"), ("student", "student_logp"), ("teacher", "teacher_logp"), ("gate", "gate"))
    }
    base = turn.get("base_adv")
    if base is None:  # without it, nothing can be said about what was added to it
        numbers["adv"] = None
    texts = {key: str(turn.get(key, "")) for key in ("prompt", "observation", "action")}
    return (
        texts
        | numbers
        | {
            "tokens": turn["tokens"],
            "kinds": [CATEGORIES.index(kind) for kind in kinds],
            "base": None if base is None else round(float(base), 4),
            "valid": bool(turn.get("valid", True)),
        }
    )


def _episode(episode: dict) -> dict:
    return {
        "step": episode["step"],
        "set": str(episode.get("set", "")),
        "task": str(episode.get("task", "")),
        "type": str(episode.get("task_type", "")),
        "return": round(float(episode.get("return") or 0.0), 3),
        "won": bool(episode.get("won")),
        "turns": [_turn(turn) for turn in episode["turns"]],
    }


def _about(run: Run, kept: int, episodes: int) -> str:
    settings = run.settings
    said = [label(settings), *(f"{key} {settings[key]}" for key in ("env", "seed", "eta", "model") if key in settings)]
    thinned = [f"{kept} of {episodes} saved episodes, evenly"] * (kept < episodes)
    return ", ".join([*said, *thinned, *([run.partial] if run.partial else [])])


def run_data(folder: Path) -> dict:
    """One run for the page. Raises LogError, FileNotFoundError where it kept no episodes."""
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder}: no config.json, so not the folder of a run")
    run = read_run(folder)
    if not (folder / "episodes.jsonl").is_file():
        raise FileNotFoundError(f"{folder}: the run kept no episodes.jsonl (train.py --episodes)")
    episodes, _ = read_episodes(folder / "episodes.jsonl")
    if not episodes:
        raise LogError(f"{folder / 'episodes.jsonl'}: no whole episode in it")
    episodes = sorted(episodes, key=lambda e: (not any(turn.get("adv") for turn in e["turns"]), -e["step"]))
    places = np.unique(np.linspace(0, len(episodes) - 1, min(EPISODES, len(episodes))).astype(int))
    kept = [_episode(episodes[place]) for place in places]
    return {"name": run.name, "about": _about(run, len(kept), len(episodes)), "episodes": kept}


def _inert(data: list) -> str:
    """JSON that is ASCII and in which no tag, comment or entity can begin."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def page(folders: list[Path]) -> str:
    """The page for one or two runs. Raises ValueError for more, and as `run_data`."""
    if not 1 <= len(folders) <= 2:
        raise ValueError(f"--page was given {len(folders)} times: a page shows one run, or two side by side")
    html, style, script = ((HERE / f"credit.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    parts = {"@CSP@": policy, "@STYLE@": style, "@SCRIPT@": script, "@DATA@": _inert([run_data(f) for f in folders])}
    for mark, text in parts.items():
        html = html.replace(mark, text)
    return html
