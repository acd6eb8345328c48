"""From the tokens of a response to categories, and from log-probs to the gap between teacher and student in each.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

The rules (method.md 1.7; the paper prints none). They work on decoded tokens, whole words or pieces of words:
  1. tag     <think> </think> <action> </action> <search> </search> <answer> </answer>, and the end token
  2. Only what stands between <action> and </action> (<search>, <answer>) can be action or object:
     action  a word of VERBS;   object  a word or number of the admissible actions that is no verb, the argument of
             verb[argument], and everything in <search> and <answer>
  3. style   all the rest: the thinking, white space, punctuation, words that no admissible action holds
  4. A token of which characters fall into several classes belongs to the one that most of them have.
The gap of a token is teacher_logp - student_logp, in nats. Its mean is given signed and absolute: a ratio of signed
means explodes when the style mean passes through zero, which is how the paper's 95 came about. Left out: the drawing.
"""

import re
from collections import Counter

import numpy as np

from analysis.groups import Group
from analysis.logs import read_episodes
from analysis.paper import GAPS
from analysis.render import Table
from analysis.stats import Measure, over_clusters

CATEGORIES = ("action", "object", "style", "tag")
VERBS = frozenset((
    "go", "to", "take", "pick", "up", "from", "put", "move", "in", "on", "in/on", "open", "close", "use", "heat",
    "cool", "clean", "slice", "with", "examine", "look", "inventory", "toggle", "search", "click",
))  # fmt: skip
TAG = re.compile(r"</?(?:think|action|search|answer|information)>", re.IGNORECASE)
END = re.compile(r"<\|.*\|>|</?s>|<(?:eos|end|pad)>|\[(?:eos|end|pad)\]", re.IGNORECASE | re.DOTALL)
SPAN = re.compile(r"<(action|search|answer)>(.*?)(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL)
WORD = re.compile(r"in/on|\w+", re.IGNORECASE)
CALL = re.compile(r"\b\w++\s*+\[([^\]]*)")


def _entities(admissible: list[str]) -> set[str]:
    return {word.lower() for action in admissible for word in WORD.findall(action)} - VERBS


def character_classes(response: str, admissible: list[str]) -> list[str]:
    """The category of each character of a response."""
    classes, entities = ["style"] * len(response), _entities(admissible)

    def mark(start: int, end: int, kind: str) -> None:
        classes[start:end] = [kind] * (end - start)

    for span in SPAN.finditer(response):
        start, end = span.span(2)
        for word in WORD.finditer(response, start, end):
            text = word[0].lower()
            if span[1].lower() != "action":
                mark(*word.span(), "object")
            elif text in VERBS or text in entities:
                mark(*word.span(), "action" if text in VERBS else "object")
        for call in CALL.finditer(response, start, end):
            for word in WORD.finditer(response, *call.span(1)):
                mark(*word.span(), "object")
    for tag in TAG.finditer(response):
        mark(*tag.span(), "tag")
    return classes


def locate(response: str, tokens: list[str]) -> list[tuple[int, int] | None]:
    """Where each decoded token stands in the response, without the white space around it; None where it does not.

    Tokens follow each other; white space between them is free, so that a tokenizer of whole words fits too. A token
    that is a fragment of a character decodes to something that is not there; the next ones are looked for behind it.
    """
    places, cursor, lost = [], 0, 0
    for token in tokens:
        text = token.strip()
        while cursor < len(response) and response[cursor].isspace():
            cursor += 1
        start = response.find(text, cursor, cursor + 4 * lost + len(text))
        if start < 0:
            places.append(None)
            lost += 1
            continue
        places.append((start, start + len(text)))
        if text:
            cursor, lost = start + len(text), 0
    return places


def categories(response: str, tokens: list[str], admissible: list[str]) -> list[str]:
    """The category of each token of a response, by the rules above."""
    classes = character_classes(response, admissible)
    out = []
    for token, place in zip(tokens, locate(response, tokens), strict=True):
        if END.fullmatch(token.strip()):
            out.append("tag")
            continue
        inside = Counter(classes[slice(*place)] if place else ())
        out.append(min(inside, key=lambda kind: (-inside[kind], CATEGORIES.index(kind))) if inside else "style")
    return out


def episode_sums(episode: dict) -> dict[str, tuple[float, float, int]] | None:
    """Sum of the gap, of its absolute value, and number of tokens of each category; None where no teacher scored."""
    gaps = {kind: [] for kind in CATEGORIES}
    for turn in episode["turns"]:
        if turn.get("teacher_logp") is None or turn.get("student_logp") is None:
            return None
        difference = np.array(turn["teacher_logp"], float) - np.array(turn["student_logp"], float)
        kinds = categories(str(turn.get("response", "")), turn["tokens"], turn.get("admissible") or [])
        for kind, gap in zip(kinds, difference.tolist(), strict=True):
            gaps[kind].append(gap)
    return {kind: (sum(values), sum(map(abs, values)), len(values)) for kind, values in gaps.items()}


def summarise(episodes: list[dict]) -> list[dict]:
    """A row for each set, step and category: n tokens, signed mean and mean absolute gap (nats), and the ratio of
    both to those of style. Intervals: bootstrap over episodes. Episodes that no teacher scored are not in it."""
    found: dict[tuple[str, int], list[dict]] = {}
    for episode in episodes:
        sums = episode_sums(episode)
        if sums is not None:
            found.setdefault((str(episode.get("set", "fresh")), episode["step"]), []).append(sums)
    rows = []
    for (kind_of_set, step), clusters in sorted(found.items()):
        # [category][signed, absolute, count][episodes]
        sums = {kind: np.array([cluster[kind] for cluster in clusters], float).T for kind in CATEGORIES}
        for kind in CATEGORIES:
            if sums[kind][2].sum():
                rows.append({
                    "set": kind_of_set, "step": step, "category": kind, "n": int(sums[kind][2].sum()),
                    "episodes": len(clusters), **_measures(sums[kind], sums["style"]),
                })  # fmt: skip
    return rows


def _measures(own: np.ndarray, style: np.ndarray) -> dict[str, Measure]:
    """`own`, `style` [3, episodes]: the sums of a category and of style."""

    def mean(total: np.ndarray, count: np.ndarray) -> np.ndarray:
        return total / np.where(count > 0, count, np.nan)

    def ratio(total: np.ndarray, count: np.ndarray, base: np.ndarray, base_count: np.ndarray) -> np.ndarray:
        below = np.abs(mean(base, base_count))
        return np.abs(mean(total, count)) / np.where(below > 0, below, np.nan)

    def measure(samples: list[np.ndarray], statistic, digits: int) -> Measure:
        low, high = over_clusters(samples, statistic)
        return Measure(float(statistic(*(sample.sum() for sample in samples))), low, high, digits=digits)

    return {
        "mean": measure([own[0], own[2]], mean, 3),
        "mean_abs": measure([own[1], own[2]], mean, 3),
        "ratio": measure([own[0], own[2], style[0], style[2]], ratio, 1),
        "ratio_abs": measure([own[1], own[2], style[1], style[2]], ratio, 1),
    }


def gaps_by_method(members: list[Group]) -> tuple[dict[str, list[dict]], list[str]]:
    """`summarise` of the episodes of each group's runs together, and what is missing."""
    found, notes = {}, []
    for group in members:
        episodes = []
        for run in group.runs:
            path = run.path / "episodes.jsonl"
            if not run.ours or not path.is_file():
                notes.append(f"{run.name} kept no episodes.")
                continue
            read, more = read_episodes(path)
            episodes += read
            notes += more
        rows = summarise(episodes)
        if rows:
            found[f"{group.env}, {group.name}"] = rows
        elif episodes:
            notes.append(f"{group.env}, {group.name}: no teacher scored its episodes.")
    return found, notes


def gap_table(table: str, gaps: dict[str, list[dict]], notes: list[str]) -> Table:
    """Gaps by method, set, step and category, the paper's below ours."""
    columns = (
        "method", "episodes", "step", "category", "tokens", "mean gap, nats", "mean |gap|, nats",
        "|mean| over style's", "mean |gap| over style's",
    )  # fmt: skip
    rows = [
        (
            name, f"{row['set']}, {row['episodes']}", str(row["step"]), row["category"], str(row["n"]), row["mean"],
            row["mean_abs"], row["ratio"], row["ratio_abs"],
        )
        for name, several in gaps.items()
        for row in several
    ]
    for step, means in GAPS.items():
        for kind, mean in zip(CATEGORIES, means, strict=False):
            ratio = Measure(abs(mean) / abs(means[2]))
            rows.append(
                ("paper, ALFWorld 3B", "frozen, 4", str(step), kind, "–", Measure(mean, digits=3), "–", ratio, "–")
            )
    said = [
        "Intervals: 95 %, bootstrap over episodes. Categories: the rules in analysis/tokens.py; the paper's are not "
        "published, and its 32 action and object tokens come from four episodes."
    ]
    return Table(f"{table}_gaps", "gap between teacher and student by token category", columns, rows, 4, said + notes)
