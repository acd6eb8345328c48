"""From passages to an index, and from queries to ranked passages: BM25 inside the process.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

bm25s weighs every (word, passage) pair once and keeps the weights as a sparse matrix on disk; a batch of queries is
then one sparse product with that matrix, which is memory-mapped and so shared by all processes. 1,280 queries on 4,000
passages take 0.1 s. Left out: stemming, which bought nothing on the mini set (searchqa.md 2.2).
"""

import hashlib
import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import bm25s
import numpy as np
from scipy.sparse import csr_matrix

from envs.search.passages import Corpus, Passage, read_corpus

K1, B = 0.9, 0.4  # searchqa.md 2.2
CHUNK = 16  # queries in one product: bounds its memory at CHUNK x passages
FORMAT = "1"  # goes up when the tokenizer or the files change, so that old indexes are built anew
_STOP_WORDS = """a about an and are as at be been by did do does for from had has have how in is it its of on or than
    that the their there these this those through to was were what when where which who whom whose why will with
    would"""
_STOP = frozenset(_STOP_WORDS.split())


def tokenize(text: str) -> list[str]:
    """Lower-case ASCII letters and digits in runs, accents stripped (NFKD), stop words left out."""
    plain = unicodedata.normalize("NFKD", text.lower())
    plain = "".join(char for char in plain if not unicodedata.combining(char))
    return [word for word in re.findall("[a-z0-9]+", plain) if word not in _STOP]


class LocalBM25:
    """A `Retriever` over passages in memory (`build`) or in a file (`open`). The title counts twice."""

    def __init__(self, passages: Sequence[Passage], index: bm25s.BM25, fingerprint: str):
        self.passages, self.vocabulary, self.fingerprint = passages, index.vocab_dict, fingerprint
        weights = index.scores["data"], index.scores["indices"], index.scores["indptr"]
        self.weights = csr_matrix(weights, shape=(len(weights[2]) - 1, len(passages)), copy=False)  # [words, passages]

    @classmethod
    def build(cls, passages: Sequence[Passage]) -> "LocalBM25":
        """An index in memory alone. Raises ValueError where no passage holds a word."""
        digest = hashlib.sha256(FORMAT.encode())
        for passage in passages:
            digest.update(f"{passage.id}\t{passage.contents}\n".encode("utf-8", "replace"))
        return cls(passages, _index(passages), digest.hexdigest()[:16])

    @classmethod
    def open(cls, file: Path, cache: Path | None = None) -> "LocalBM25":
        """The index of a corpus file, memory-mapped; built on first use and kept under `cache`.

        The folder's name holds the sha256 of the corpus, so a changed file is indexed anew; the folder appears whole
        or not at all, so processes that build at the same time do no harm. Default cache: $XDG_CACHE_HOME or
        ~/.cache, then adrs/search. Errors: see `read_corpus`.
        """
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such corpus")
        with file.open("rb") as handle:
            name = hashlib.sha256(FORMAT.encode() + hashlib.file_digest(handle, "sha256").digest()).hexdigest()[:16]
        folder = (cache or home / "adrs" / "search") / name
        if not folder.is_dir():
            _write(read_corpus(file), folder)
        index = bm25s.BM25.load(folder, mmap=True, show_progress=False)
        return cls(Corpus(file, np.load(folder / "offsets.npy", mmap_mode="r")), index, name)

    def batch(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """Passages that share a word with the query, best first, at most `topk`; equal scores in corpus order."""
        chunks = [queries[at : at + CHUNK] for at in range(0, len(queries), CHUNK)]
        return [found for chunk in chunks for found in self._product(chunk, topk)]

    def _product(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        known = [[self.vocabulary[w] for w in tokenize(query) if w in self.vocabulary] for query in queries]
        words = np.array([word for row in known for word in row], dtype=np.int32)
        ends = np.cumsum([0] + [len(row) for row in known], dtype=np.int32)
        counts = csr_matrix((np.ones(len(words), np.float32), words, ends), shape=(len(known), self.weights.shape[0]))
        scores = counts @ self.weights  # [queries, passages], sparse: the passages that share a word
        return [self._best(scores.data[a:b], scores.indices[a:b], topk)
                for a, b in zip(scores.indptr[:-1], scores.indptr[1:], strict=True)]  # fmt: skip

    def _best(self, scores: np.ndarray, passages: np.ndarray, topk: int) -> list[Passage]:
        if len(scores) > topk > 0:
            keep = scores >= -np.partition(-scores, topk - 1)[topk - 1]  # all that tie with the last place, too
            scores, passages = scores[keep], passages[keep]
        order = np.lexsort((passages, -scores))[: max(topk, 0)]
        found = [(self.passages[int(passages[i])], float(scores[i])) for i in order]
        return [Passage(passage.id, passage.title, passage.text, score) for passage, score in found]


def _index(passages: Sequence[Passage]) -> bm25s.BM25:
    documents = [tokenize(f"{passage.title} {passage.title} {passage.text}") for passage in passages]
    words = sorted({word for document in documents for word in document})
    if not words:
        raise ValueError("no passage holds a word of ASCII letters or digits: nothing to index")
    vocabulary = {word: number for number, word in enumerate(words)}
    index = bm25s.BM25(k1=K1, b=B)
    index.index(([[vocabulary[word] for word in document] for document in documents], vocabulary), show_progress=False)
    return index


def _write(corpus: Corpus, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=folder.parent))
    try:
        _index(corpus).save(draft, show_progress=False)
        np.save(draft / "offsets.npy", corpus.offsets)
        if not folder.is_dir():
            draft.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process finished first, and its index is as good
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
