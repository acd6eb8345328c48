"""What is searched and how: passages, corpus files, the one method of a retriever, queries made safe.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

Left out: ranking (bm25.py) and the network (client.py, serve.py).
"""

import json
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

MAX_QUERY_WORDS = 64  # a model that rambles must not cost the server a page of text
MAX_QUERY_CHARS = 1000


@dataclass(frozen=True)
class Passage:
    """A piece of a page, and how well it answers the query that found it."""

    id: str
    title: str
    text: str
    score: float = 0.0

    @property
    def contents(self) -> str:
        """Title in quotes on the first line, text below: the form of Search-R1's corpus (searchqa.md 1.6)."""
        return f'"{self.title}"\n{self.text}'


class RetrievalError(RuntimeError):
    """The search service failed: not the same as a search that found nothing."""


class Retriever(Protocol):
    """Answers many queries at once: for each, in order, at most `topk` passages, best first, ties by corpus order;
    an empty list where nothing matches. An entry may be a RetrievalError where the retriever was told to go on
    after one; else it is raised. May be called from several threads."""

    fingerprint: str  # names what is searched, for panels and results

    def batch(self, queries: Sequence[str], topk: int) -> list[list[Passage] | RetrievalError]: ...


def clean_query(text: str) -> str:
    """A model's query as one line that any server can take: valid Unicode, no control characters, bounded length."""
    text = text[: 4 * MAX_QUERY_CHARS].encode("utf-8", "replace").decode("utf-8")
    words = "".join(char if char.isprintable() else " " for char in text).split()
    return " ".join(words[:MAX_QUERY_WORDS])[:MAX_QUERY_CHARS].rstrip()


def passage_from(record: dict, where: str) -> Passage:
    """A passage from {"id", "title", "text"}, {"id", "contents"}, or either inside {"document": ..., "score": ...}.

    Raises ValueError that begins with `where` and says what is missing.
    """
    document = record.get("document", record) if isinstance(record, dict) else record
    if not isinstance(document, dict):
        raise ValueError(f"{where}: a passage must be a JSON object, not {type(document).__name__}")
    name, title, text = document.get("id"), document.get("title"), document.get("text")
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise ValueError(f"{where}: a passage needs an `id`, a string or a whole number")
    if isinstance(document.get("contents"), str):
        first, _, rest = document["contents"].partition("\n")
        title, text = first.strip().removeprefix('"').removesuffix('"'), rest
    if not isinstance(title, str) or not isinstance(text, str):
        raise ValueError(f"{where}: a passage needs `title` and `text`, or `contents` (title line, then text)")
    score = record.get("score", 0.0)
    return Passage(str(name), title, text.strip(), float(score) if isinstance(score, int | float) else 0.0)


def json_lines(file: Path) -> Iterator[tuple[int, int, dict]]:
    """Every record of a JSON-lines file with its line number, from 1, and the byte where its line begins.

    Raises FileNotFoundError, and ValueError that names file and line of what is not a JSON object in UTF-8.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    begin = 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    record = json.loads(line.decode("utf-8"))
                except (ValueError, RecursionError) as error:  # of JSON, of UTF-8, or of brackets without end
                    raise ValueError(f"{file}, line {number}: not a JSON object in UTF-8 ({error})") from error
                if not isinstance(record, dict):
                    raise ValueError(f"{file}, line {number}: expected a JSON object, found {type(record).__name__}")
                yield number, begin, record
            begin += len(line)


class Corpus(Sequence[Passage]):
    """A JSON-lines file as a sequence of passages that stays on disk: one memory map and the lines' offsets."""

    def __init__(self, file: Path, offsets: np.ndarray):
        """`offsets` [passages] int64: the byte where each passage's line begins."""
        self.file, self.offsets = file, offsets
        with file.open("rb") as handle:
            self.bytes = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, index: int) -> Passage:
        begin = int(self.offsets[index])
        end = self.bytes.find(b"\n", begin)
        line = self.bytes[begin : end if end >= 0 else len(self.bytes)]
        return passage_from(json.loads(line), f"{self.file}, byte {begin}")


def read_corpus(file: Path) -> Corpus:
    """Opens a corpus after checking every line of it.

    Raises FileNotFoundError, and ValueError that names file and line: broken line, missing field, repeated id,
    or no passage at all.
    """
    offsets, first_seen = [], {}
    for number, begin, record in json_lines(file):
        name = passage_from(record, f"{file}, line {number}").id
        if name in first_seen:
            raise ValueError(f"{file}, line {number}: id {name!r:.80} was used on line {first_seen[name]}")
        first_seen[name] = number
        offsets.append(begin)
    if not offsets:
        raise ValueError(f"{file}: holds no passage")
    return Corpus(file, np.array(offsets, dtype=np.int64))
