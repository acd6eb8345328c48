"""The other skill source: a bank of skill items, searched with the task's own words.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
            [bank] ----^^^^^^^

SDAR's paper looks skills up in a bank; ADRS's provider is indexed by the task's type (`SkillProvider`). Both hand a
text to the same teacher, so `--skills bank` and `--skills task` go with every method. The bank's items are the items of
the same skill files, found by BM25. Left out: SDAR's bandit over items, which its released code does not have.
Source: method.md 1.6.
"""

import re

import bm25s
import numpy as np

from envs.base import Task
from teacher import SkillProvider

_ITEM = re.compile(r"^\s*(?:\d+\.|[-*])\s+", re.MULTILINE)


def items_of(text: str) -> list[str]:
    """The items of a skill text: its numbered or bulleted entries, else its lines. Headings are no items."""
    parts = _ITEM.split(text)[1:] if _ITEM.search(text) else text.splitlines()
    items = (" ".join(part.split("\n\n")[0].split()) for part in parts)
    return [item for item in items if item and not item.startswith("#")]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


class SkillBank:
    """Task -> the `topk` items that BM25 ranks highest for the task's goal, best first. Drop-in for `SkillProvider`."""

    def __init__(self, provider: SkillProvider, topk: int = 6):
        if topk < 1:
            raise ValueError(f"--skills_topk {topk}: give at least 1")
        texts = [provider.general, *provider.texts.values(), *provider.topics.values()]
        self.items = list(dict.fromkeys(item for text in texts for item in items_of(text)))
        if not self.items:
            raise ValueError(f"{provider.folder}: no skill items to search")
        self.provider, self.topk = provider, topk
        self.index = bm25s.BM25()
        self.index.index([_words(item) for item in self.items], show_progress=False)

    def text(self, task: Task) -> str:
        """The items, a line each; items that share no word with the goal are left out."""
        query = [word for word in _words(task.goal) if word in self.index.vocab_dict]
        if not query:
            return ""
        scores = self.index.get_scores(query)
        best = np.argsort(-scores, kind="stable")[: self.topk]
        return "\n".join(self.items[i] for i in best if scores[i] > 0)

    def fingerprint(self) -> str:
        return f"{self.provider.fingerprint()} bank {self.topk}"
