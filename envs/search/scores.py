"""From an answer and its golds to exact match and F1; from one row a question to the scores of a panel.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

Every mean here is taken over questions. A mean over batches is not: a data set that straddles two batches would weigh
its last question as much as a whole batch (method.md 5.4). Left out: where the rows come from (evaluate.py).
"""

import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalise(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces, in this order. Source: searchqa.md 1.2."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golds: Sequence[str]) -> bool:
    """Whether the normalised answer equals a normalised gold. One that normalises to nothing matches nothing."""
    said = normalise(answer)
    return said != "" and any(said == normalise(gold) for gold in golds)


def f1(answer: str, golds: Sequence[str]) -> float:
    """The best F1 in 0..1 over the golds: harmonic mean of precision and recall of normalised words, as multisets."""
    said = Counter(normalise(answer).split())
    return max((_overlap(said, Counter(normalise(gold).split())) for gold in golds), default=0.0)


def _overlap(said: Counter, gold: Counter) -> float:
    common = (said & gold).total()
    return 2 * common / (said.total() + gold.total()) if common else 0.0


class Outcome(NamedTuple):
    """How one question of a panel went."""

    id: str  # the task's, unique in the panel
    source: str  # its data set: the task's topic
    em: float  # 1 or 0
    f1: float  # 0..1


def score_table(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """The scores of a panel, every one under its label:

    n/SOURCE, em/micro/SOURCE, f1/micro/SOURCE   questions of a data set, and their mean
    em/macro, f1/macro                           mean over data sets, each with the same weight
    n/overall, em/overall, f1/overall            mean over all questions, each with the same weight
    Raises ValueError on an empty panel and on a question that comes twice.
    """
    rows = [Outcome(*outcome) for outcome in outcomes]
    if not rows:
        raise ValueError("no outcome to score: the panel is empty")
    repeated = [name for name, count in Counter(row.id for row in rows).items() if count > 1]
    if repeated:
        raise ValueError(f"question {repeated[0]} is scored more than once: give every row of one panel once")
    by_source = defaultdict(list)
    for row in rows:
        by_source[row.source].append(row)
    table = {f"n/{source}": float(len(by_source[source])) for source in sorted(by_source)}
    for metric in ("em", "f1"):
        micro = {source: _mean([getattr(row, metric) for row in by_source[source]]) for source in sorted(by_source)}
        table |= {f"{metric}/micro/{source}": value for source, value in micro.items()}
        table[f"{metric}/macro"] = _mean(list(micro.values()))
        table[f"{metric}/overall"] = _mean([getattr(row, metric) for row in rows])
    return table | {"n/overall": float(len(rows))}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
