"""Search-based QA: a question, a search engine, a few turns to answer; scored by exact match.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

A turn is one model call: `<search> query </search>` brings a page of passages, `<answer> text </answer>` ends the
episode. Every turn has its own prompt, in which pages stand as text of the user message: only what the model wrote is
ever projected or scored. Rules: searchqa.md 1. Left out: how passages are found (bm25.py, client.py), where questions
come from (questions.py, encyclopaedia.py), how a page and a prompt look (pages.py, prompts.py).
"""

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from envs.base import SPLITS, Player, Task, View
from envs.search import encyclopaedia as made
from envs.search.bm25 import LocalBM25
from envs.search.client import HttpRetriever
from envs.search.pages import SERVICE_DOWN, STYLES, notice, page
from envs.search.passages import Passage, RetrievalError, Retriever, clean_query
from envs.search.players import key_moves, make_player
from envs.search.prompts import full_prompt, lean_prompt
from envs.search.questions import Quest, Question, as_subset, as_task, divide, read_questions
from envs.search.scores import exact_match, f1
from envs.search.vocabulary import vocabulary

_TAG = {tag: re.compile(tag, re.IGNORECASE) for tag in ("<search>", "</search>", "<answer>", "</answer>")}
RETRY = {  # what a turn without any action brings; verl-agent says nothing (searchqa.md 1.3)
    "search-r1": "That was neither a search nor an answer: write <search> query </search> or <answer> text </answer>.",
    "verl-agent": "",
}
MAX_TURNS = 4
WORLDS = 8  # practice encyclopaedias at a time


def project(response: str) -> tuple[str, bool]:
    """The action in a response, as `<search>query</search>`, `<answer>text</answer>` or "", and whether the response
    has the asked form.

    The response counts up to its first "</search>", or without one up to its first "</answer>". In that part the first
    <search>..</search> is taken, else the first <answer>..</answer>; tags in any case. Not of the asked form: nothing
    found; or, anywhere in the response, opening tags of both sorts or two of one. What was found is done all the same.
    Source: searchqa.md 1.3. Linear in the response's length; never raises.
    """
    close = next((tag for tag in ("</search>", "</answer>") if tag in response), "")
    counted = response[: response.find(close) + len(close)] if close else response
    opened = sum(len(_TAG[tag].findall(response)) for tag in ("<search>", "<answer>"))
    for name in ("search", "answer"):
        if (start := _TAG[f"<{name}>"].search(counted)) and (end := _TAG[f"</{name}>"].search(counted, start.end())):
            return f"<{name}>{counted[start.end() : end.start()].strip()}</{name}>", opened == 1
    return "", False


@dataclass(frozen=True)
class Turn:
    """What a response asks for, before anything has happened."""

    action: str
    valid: bool
    query: str  # what goes to the search engine; "" where nothing does

    @property
    def kind(self) -> str:
        return self.action[1:7]  # search, answer, or "" for neither

    @property
    def text(self) -> str:
        return self.action[8:-9]


class SearchEnv:
    """One question at a time. `step` is `plan`, a search, and `settle`; the domain does many searches at once."""

    def __init__(self, domain: "SearchQA"):
        self.domain, self.quest, self.over = domain, None, True

    def reset(self, *, seed: int | None = None, options: dict[str, Task]) -> tuple[str, dict]:
        """The question, as first observation. Nothing is random: `seed` is not used."""
        self.quest: Quest = options["task"].payload
        self.turns, self.searches, self.over = 0, 0, False
        question = self.quest.question
        return question.text, {"anchor": question.text, "admissible": (), "source": question.source}

    def step(self, response: str) -> tuple[str, float, bool, bool, dict]:
        """One turn. Raises RetrievalError where the search service is down and the retriever was told to raise: the
        turn then has not happened, and the same response can be given again."""
        return self.domain.step_many([self], [response])[0]

    def plan(self, response: str) -> Turn:
        """Reads a response; changes nothing. A search in the last turn is not carried out: nobody would read it."""
        if self.over:
            raise RuntimeError("no episode is running: call reset first")
        turn = Turn(*project(response), query="")
        last = self.turns + 1 >= self.domain.max_turns
        return turn if turn.kind != "search" or last else Turn(turn.action, turn.valid, clean_query(turn.text))

    def settle(self, turn: Turn, found: list[Passage] | RetrievalError) -> tuple[str, float, bool, bool, dict]:
        """Lets a planned turn happen, with what its query found ([] without one)."""
        golds, answered, failed = self.quest.question.golds, turn.kind == "answer", isinstance(found, RetrievalError)
        self.turns += 1
        self.searches += turn.query != ""
        out_of_turns = not answered and self.turns >= self.domain.max_turns
        self.over = answered or out_of_turns
        observation = "" if self.over else self._brought(turn, found)
        won = answered and exact_match(turn.text, golds)
        info = {
            "anchor": observation,
            "admissible": (),
            "action": turn.action,
            "valid": turn.valid,
            "won": won,
            "score": f1(turn.text, golds) if answered else 0.0,
            "source": self.quest.question.source,
            "action_type": turn.kind,
            "query": turn.query,
            "doc_ids": () if failed else tuple(passage.id for passage in found),
            "n_search": self.searches,
            "retrieval_error": str(found) if failed else "",
        }
        return observation, float(won), answered, out_of_turns, info

    def _brought(self, turn: Turn, found: list[Passage] | RetrievalError) -> str:
        style = self.domain.style
        if turn.kind != "search":
            return RETRY[style]
        return notice(SERVICE_DOWN, style) if isinstance(found, RetrievalError) else page(found, style)


class SearchQA:
    """The `Domain`. Reward 1 for an answer that matches a gold exactly, else 0; `score` is the answer's F1."""

    name = "search"
    history = 4
    invalid_penalty = 0.01

    def __init__(self, questions: dict[str, list[Question]], retriever: Retriever, source: str,
                 style: str = "search-r1", topk: int = 3, max_turns: int = MAX_TURNS):  # fmt: skip
        if style not in STYLES:
            raise ValueError(f"style {style}: unknown, choose one of {', '.join(STYLES)}")
        if topk < 1 or max_turns < 1:
            raise ValueError(f"topk {topk} and max_turns {max_turns}: give at least 1")
        self.retriever, self.source, self.style, self.topk, self.max_turns = retriever, source, style, topk, max_turns
        self.questions = questions

    def tasks(self, split: str) -> list[Task]:
        """Sorted by id. Raises ValueError on an unknown or an empty split."""
        if split not in SPLITS:
            raise ValueError(f"split {split}: unknown, choose one of {', '.join(SPLITS)}")
        if not self.questions[split]:
            raise ValueError(
                f"{self.source}: split {split} is empty. train_sources names the data sets to train on: their train "
                "questions are train, their others seen, those of all other data sets unseen"
            )
        quests = [Quest(question, self.retriever, made.HOUSE_STYLE) for question in self.questions[split]]
        return sorted((as_task(quest, self._rules) for quest in quests), key=lambda task: task.id)

    @property
    def _rules(self) -> str:
        return f"{self.style}, top {self.topk}"

    def make(self) -> SearchEnv:
        return SearchEnv(self)

    def step_many(self, envs: Sequence[SearchEnv], responses: Sequence[str]) -> list[tuple]:
        """One turn of every environment, with one batch of queries. Raises RetrievalError as `SearchEnv.step`."""
        turns = [env.plan(response) for env, response in zip(envs, responses, strict=True)]
        asking = defaultdict(list)  # practice tasks bring an encyclopaedia of their own
        for i, turn in enumerate(turns):
            if turn.query:
                asking[envs[i].quest.retriever].append(i)
        found: dict[int, list[Passage] | RetrievalError] = {}
        for retriever, members in asking.items():
            found |= zip(members, retriever.batch([turns[i].query for i in members], self.topk), strict=True)
        return [env.settle(turn, found.get(i, [])) for i, (env, turn) in enumerate(zip(envs, turns, strict=True))]

    def prompt(self, view: View, lean: bool) -> str:
        """The user message; `lean`: the same parts in few words."""
        return (lean_prompt if lean else full_prompt)(view, self.max_turns)

    def player(self, kind: str, rng: np.random.Generator) -> Player:
        return make_player(kind, rng, self.max_turns, self.questions["train"])

    def practice(self, count: int, seed: int) -> list[tuple[Task, str]]:
        """`count` tasks in encyclopaedias with other facts and another house style, each with the note that tells the
        style: whoever plays them well has read the note."""
        games = []
        for world in range(WORLDS):
            rng = np.random.default_rng([seed, world])
            book = made.practice(-(-count // (WORLDS * len(made.KINDS))), rng)
            retriever = LocalBM25.build(book.passages)
            for question in book.questions["train"]:
                task = as_task(Quest(question, retriever, book.style), self._rules)
                task = replace(task, id=f"practice-{seed}-{world}-{task.id}")
                games.append((task, made.note(task.type, book.style)))
        order = np.random.default_rng([seed, WORLDS]).permutation(len(games))[:count]
        return [games[i] for i in order]

    def key_moves(self, view: View) -> set[str]:
        """See players.py: the actions that take what is wanted and in view."""
        return key_moves(view)

    def words(self) -> list[str]:
        """Every word of lean prompts, lean skills and scripted responses on the encyclopaedia's questions."""
        return vocabulary(self.max_turns)


def make_domain(data: str = "", retrieval_url: str = "", on_retrieval_error: str = "raise", train_sources: str = "",
                style: str = "search-r1", topk: int = 3, max_turns: int | None = None, lean: bool = False,
                think_in_prompt: bool = False) -> SearchQA:  # fmt: skip
    """The domain of a data folder, or of the generated encyclopaedia.

    data: a folder with questions.jsonl and corpus.jsonl, or the beginning of such names (searchqa/mini for
    searchqa/mini_questions.jsonl); default $SEARCH_DATA, else the encyclopaedia. retrieval_url: a server to search
    instead of the corpus (client.py), default $SEARCH_URL. train_sources: see `divide`, separated by commas. style,
    topk, max_turns: of `SearchQA`. `lean` and `think_in_prompt` change nothing here: every policy gets the same
    questions, and the projection does not ask for a thought. Raises FileNotFoundError or ValueError that says what to
    give, and RetrievalError where the server does not answer.
    """
    data, url = data or os.environ.get("SEARCH_DATA", ""), retrieval_url or os.environ.get("SEARCH_URL", "")
    if data:
        questions_file, corpus_file, name = data_files(Path(data))
        parts = divide(read_questions(questions_file), [source for source in train_sources.split(",") if source])
        questions = {split: as_subset(part, name) if name else part for split, part in parts.items()}
    else:
        questions = made.encyclopaedia().questions
    if url:
        retriever = HttpRetriever(url, on_retrieval_error)
        retriever.probe()
    else:
        retriever = LocalBM25.open(corpus_file) if data else LocalBM25.build(made.encyclopaedia().passages)
    return SearchQA(questions, retriever, data or "generated", style, topk, max_turns or MAX_TURNS)


def data_files(data: Path) -> tuple[Path, Path, str]:
    """Questions, corpus, and the name of the subset where the files have one. Raises FileNotFoundError."""
    name = "" if data.is_dir() else data.name
    folder, prefix = (data, "") if data.is_dir() else (data.parent, f"{name}_")
    questions = folder / f"{prefix}questions.jsonl"
    if not questions.is_file():
        there = sorted(str(file).removesuffix("_questions.jsonl") for file in folder.glob("*_questions.jsonl"))
        hint = f"; there is data={' or data='.join(there)}" if there else ""
        raise FileNotFoundError(f"{questions}: no such file (data={data}){hint}")
    return questions, folder / f"{prefix}corpus.jsonl", name
