"""From a file of questions to tasks in three splits.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

A question belongs to a data set (its `source`, the task's topic: scores are per source) and to a kind (the task's
type: skills are per kind). Ids are unique over all sources, so that no two prompts share a group (searchqa.md 1.1).
Left out: files of other projects, which convert.py turns into this one's; passages (passages.py).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envs.base import Task
from envs.search.passages import Retriever, json_lines
from envs.search.scores import normalise

KINDS = ("direct", "attribute", "multi_hop", "comparison")
KIND_OF_SOURCE = {
    "nq": "direct",
    "triviaqa": "direct",
    "popqa": "attribute",
    "hotpotqa": "multi_hop",
    "2wikimultihopqa": "multi_hop",
    "musique": "multi_hop",
    "bamboogle": "multi_hop",
}  # the seven sets (method.md 1.6); any other source is direct
PAPER_TRAINS_ON = ("nq", "hotpotqa")
_SPLITS = ("train", "val", "dev", "test")
_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Question:
    """One question with everything that decides how it is scored. `text` ends in a question mark."""

    id: str
    text: str
    golds: tuple[str, ...]  # none of them normalises to nothing
    source: str  # data set, for example nq
    split: str  # of the file: train, or held out (val, dev, test)
    kind: str  # one of KINDS
    titles: tuple[str, ...] = ()  # pages that hold the evidence, in the order they are needed; may be unknown


def kind_of(source: str, text: str) -> str:
    """The kind of a question that does not name its own: comparison where "which" and "or" occur and "for" does not,
    else the source's. Source: method.md 1.6."""
    words = set(re.findall(r"[a-z]+", text.lower()))
    if {"which", "or"} <= words and "for" not in words:
        return "comparison"
    return KIND_OF_SOURCE.get(source, "direct")


def question_from(record: dict, where: str) -> Question:
    """A question from {"id", "question", "golden_answers", "source"} and, if there, "split" (else test), "kind",
    "supporting_titles". `golden_answers` is a string or a list; golds that normalise to nothing are dropped.

    Raises ValueError that begins with `where` and says which field is wrong.
    """
    for field in ("question", "source"):
        if not isinstance(record.get(field), str) or not record[field].strip():
            raise ValueError(f"{where}: a question needs `{field}`, a text")
    name, source, split = record.get("id"), record["source"], record.get("split", "test")
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise ValueError(f"{where}: a question needs an `id`, a string or a whole number")
    if not _SOURCE.fullmatch(source):
        raise ValueError(f"{where}: source {source!r:.80} must be letters, digits and ._- alone")
    if split not in _SPLITS:
        raise ValueError(f"{where}: split {split!r:.80} is none of {', '.join(_SPLITS)}")
    golds = _texts(record.get("golden_answers"), f"{where}: `golden_answers`")
    if not (golds := tuple(gold for gold in golds if normalise(gold))):
        raise ValueError(f"{where}: no gold answer is left after normalisation, so nothing could score")
    text = record["question"].strip()
    text += "" if text.endswith("?") else "?"
    kind = record.get("kind") or kind_of(source, text)
    if kind not in KINDS:
        raise ValueError(f"{where}: kind {kind!r:.80} is none of {', '.join(KINDS)}")
    titles = _texts(record.get("supporting_titles") or [], f"{where}: `supporting_titles`")
    return Question(f"{source}:{name}", text, golds, source, split, kind, titles)


def _texts(value: object, where: str) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        raise ValueError(f"{where} must be a text or a list of texts")
    return tuple(values)


def read_questions(file: Path) -> list[Question]:
    """All questions of a JSON-lines file. Raises FileNotFoundError, and ValueError that names file and line."""
    questions, first_seen = [], {}
    for number, _, record in json_lines(file):
        question = question_from(record, f"{file}, line {number}")
        if question.id in first_seen:
            raise ValueError(f"{file}, line {number}: id {question.id:.80} was used on line {first_seen[question.id]}")
        first_seen[question.id] = number
        questions.append(question)
    if not questions:
        raise ValueError(f"{file}: holds no question")
    return questions


def as_subset(questions: Iterable[Question], name: str) -> list[Question]:
    """The questions with `name-` before every source: the score of a subset must not pass for that of the data set
    (searchqa.md 2.4)."""
    return [replace(q, id=f"{name}-{q.id}", source=f"{name}-{q.source}") for q in questions]


def divide(questions: Sequence[Question], train_sources: Iterable[str] = ()) -> dict[str, list[Question]]:
    """The questions as train, seen and unseen: `train` of the training sources, what is held out of those sources,
    and everything of all other sources.

    No `train_sources`: the two that the paper trains on where the file has them, else every source with a `train`
    question. Raises ValueError on a source that has none.
    """
    able = {question.source for question in questions if question.split == "train"}
    wanted = set(train_sources)
    if missing := sorted(wanted - able):
        raise ValueError(f"train_sources: {missing[0]} has no question in split train (has: {', '.join(sorted(able))})")
    wanted = wanted or (set(PAPER_TRAINS_ON) & able) or able
    parts = {"train": [], "seen": [], "unseen": []}
    for question in questions:
        if question.source not in wanted:
            parts["unseen"].append(question)
        else:
            parts["train" if question.split == "train" else "seen"].append(question)
    return parts


@dataclass(frozen=True)
class Quest:
    """What is played: a question, and where its answer is searched."""

    question: Question
    retriever: Retriever
    style: dict[str, str]  # house words of the encyclopaedia's entries; {} elsewhere

    @property
    def source(self) -> str:
        """The data set, by which scores are told apart."""
        return self.question.source


def as_task(quest: Quest, rules: str) -> Task:
    """The task of a question. Its digest covers what is asked, what scores, what is searched and the `rules` that shape
    the pages: the same question over another corpus is another task."""
    question = quest.question
    content = json.dumps([question.text, question.golds, quest.retriever.fingerprint, rules])
    return Task(
        id=question.id,
        type=question.kind,
        goal=question.text,
        topic=question.source,
        digest=hashlib.sha256(content.encode()).hexdigest(),
        payload=quest,
    )
