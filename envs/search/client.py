"""From queries to passages over the network: a client for the retrieval servers of Search-R1, verl and verl-agent.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

All queries of a turn go out as a few requests, each tried again after a failure that may pass; an answer counts only
if it is complete. A server that is down is a RetrievalError, never an empty result. Contract and its traps:
searchqa.md 1.6; for example Search-R1's server fails unless `return_scores` is true, so it always is. Left out: TLS
settings and credentials; such servers run beside the training.
"""

import http.client
import json
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from urllib.parse import urlsplit

from envs.search.passages import Passage, RetrievalError, passage_from

DIALECTS = ("auto", "queries", "query")  # Search-R1 and verl: a list; verl-agent: one query a request
ON_ERROR = ("raise", "observe")
MAX_BATCH = 64  # queries a request
IN_FLIGHT = 4  # requests at a time: servers run one encoder without a lock
CACHE = 100_000  # answers kept
MAX_ANSWER = 64 * 2**20  # bytes
_EXAMPLE = {
    "queries": '{"queries": ["Paris"], "topk": 1, "return_scores": true}',
    "query": '{"query": "Paris", "topk": 1, "return_scores": true}',
}


class _Failed(RetrievalError):
    """One request failed. `passing`: it may well succeed next time. `answered`: the server is alive."""

    def __init__(self, message: str, passing: bool, answered: bool):
        super().__init__(message)
        self.passing, self.answered = passing, answered


class HttpRetriever:
    """A `Retriever` on one or several equal servers.

    urls: full addresses such as http://host:8000/retrieve, separated by commas; requests take turns.
    dialect: auto asks the server in both forms, once. timeout: seconds for a whole request. retries: tries after the
    first, with a pause of `pause` seconds that doubles up to 8 s, with jitter. on_error: raise a RetrievalError, or
    return it in the place of the passages of the queries that failed.
    Equal queries are asked once and remembered. Thread-safe. Raises ValueError on a bad setting.
    """

    def __init__(self, urls: str, on_error: str = "raise", dialect: str = "auto", timeout: float = 30.0,
                 retries: int = 5, pause: float = 0.5):  # fmt: skip
        self.urls = [url.strip() for url in urls.split(",") if url.strip()]
        for url in self.urls or [urls]:
            _check(url)
        if on_error not in ON_ERROR:
            raise ValueError(f"on_retrieval_error {on_error}: unknown, choose one of {', '.join(ON_ERROR)}")
        if dialect not in DIALECTS:
            raise ValueError(f"dialect {dialect}: unknown, choose one of {', '.join(DIALECTS)}")
        self.on_error, self.dialect, self.timeout, self.retries, self.pause = on_error, dialect, timeout, retries, pause
        self.fingerprint = "http"  # what a server holds cannot be known from here
        self._turn, self._lock, self._jitter = count(), threading.Lock(), random.Random()
        self._known: OrderedDict[tuple[str, int], list[Passage]] = OrderedDict()

    def batch(self, queries: Sequence[str], topk: int) -> list[list[Passage] | RetrievalError]:
        """See `Retriever`. Nothing that was found is lost where another query fails: it is remembered."""
        answers = {query: self._recall(query, topk) for query in queries}  # each query once
        wanted = [query for query, answer in answers.items() if answer is None]
        if wanted:
            answers |= self._ask_all(wanted, topk)
        failed = [answer for answer in answers.values() if isinstance(answer, RetrievalError)]
        if failed and self.on_error == "raise":
            raise RetrievalError(f"{len(failed)} of {len(answers)} queries failed: {failed[0]}")
        return [answers[query] for query in queries]

    def probe(self, wait: float = 60.0) -> None:
        """Waits up to `wait` seconds for the first server to answer a query (loading an index takes its time) and finds
        out its dialect. Raises RetrievalError that says what to try."""
        until = time.monotonic() + wait
        while True:
            try:
                self._greet()
                return
            except _Failed as error:
                if not error.passing or time.monotonic() >= until:
                    raise RetrievalError(str(error)) from error
            time.sleep(min(1.0, max(0.0, until - time.monotonic())))

    def _recall(self, query: str, topk: int) -> list[Passage] | None:
        with self._lock:
            if (query, topk) in self._known:
                self._known.move_to_end((query, topk))
            return self._known.get((query, topk))

    def _ask_all(self, queries: list[str], topk: int) -> dict[str, list[Passage] | RetrievalError]:
        """Asks in parallel; keeps what came."""
        try:
            if self.dialect == "auto":
                self._greet(self.retries)
        except _Failed as error:
            return dict.fromkeys(queries, error)
        size = MAX_BATCH if self.dialect == "queries" else 1
        parts = [queries[at : at + size] for at in range(0, len(queries), size)]
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            answers = [answer for part in pool.map(lambda part: self._insist(part, topk), parts) for answer in part]
        with self._lock:
            for query, answer in zip(queries, answers, strict=True):
                if not isinstance(answer, RetrievalError):
                    self._known[query, topk] = answer
            while len(self._known) > CACHE:
                self._known.popitem(last=False)
        return dict(zip(queries, answers, strict=True))

    def _insist(self, queries: list[str], topk: int, may_split: bool = True) -> list[list[Passage] | RetrievalError]:
        """One request, tried again and again; a batch that a living server keeps refusing is split in two, once."""
        try:
            return self._retry(partial(self._request, self.dialect, queries, topk), self.retries)
        except _Failed as error:
            if not (may_split and error.answered and len(queries) > 1):
                return [error] * len(queries)
        middle = len(queries) // 2
        return self._insist(queries[:middle], topk, False) + self._insist(queries[middle:], topk, False)

    def _retry(self, request: Callable[[], list[list[Passage]]], retries: int) -> list[list[Passage]]:
        """Makes a request until it succeeds; raises its last failure, and at once one that will not pass."""
        for attempt in count(1):
            try:
                return request()
            except _Failed as error:
                if not error.passing or attempt > retries:
                    raise
            time.sleep(min(8.0, self.pause * 2 ** (attempt - 1)) * self._jitter.uniform(0.5, 1.0))

    def _greet(self, retries: int = 0) -> None:
        """Asks one query; of the dialects that may be meant, the first that is not refused is spoken from now on."""
        dialects = DIALECTS[1:] if self.dialect == "auto" else (self.dialect,)
        for dialect in dialects:
            try:
                self._retry(partial(self._request, dialect, ["capital of France"], 1), retries)
                self.dialect = dialect
                return
            except _Failed as error:
                if error.passing or dialect == dialects[-1]:
                    raise

    def _request(self, dialect: str, queries: list[str], topk: int) -> list[list[Passage]]:
        """Asks once. Raises _Failed unless every query has its list of whole passages."""
        url = self.urls[next(self._turn) % len(self.urls)]
        form = {"queries": queries} if dialect == "queries" else {"query": queries[0]}
        body = json.dumps(form | {"topk": topk, "return_scores": True})
        hint = f"try: curl -H 'Content-Type: application/json' -d '{_EXAMPLE[dialect]}' {url}"
        try:
            status, answer = self._post(url, body.encode())
        except (OSError, http.client.HTTPException) as error:  # refused, reset, too slow, cut off
            raise _Failed(f"{url}: {type(error).__name__} {error}; {hint}", passing=True, answered=False) from error
        shown = answer[:200].decode("utf-8", "replace")
        if status != 200:
            passing = status >= 500 or status in (408, 429)
            raise _Failed(f"{url}: HTTP {status}: {shown!r}; {hint}", passing, answered=True)
        try:
            lists = json.loads(answer)["result"]
            if len(lists) != len(queries) or not all(isinstance(documents, list) for documents in lists):
                raise ValueError(f"expected {len(queries)} lists of documents")
            return [[passage_from(document, "a document") for document in documents[:topk]] for documents in lists]
        except (ValueError, KeyError, TypeError, RecursionError) as error:  # a page of HTML, half an answer
            raise _Failed(f"{url}: {error}: {shown!r}; {hint}", passing=True, answered=True) from error

    def _post(self, url: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of one request on a connection of its own. `timeout` bounds every wait, and the whole body
        however slowly it drips. Raises OSError or http.client.HTTPException."""
        until = time.monotonic() + self.timeout
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=self.timeout)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            pieces, size = [], 0
            while piece := response.read1(65536):
                pieces.append(piece)
                size += len(piece)
                if time.monotonic() > until:
                    raise TimeoutError(f"no whole answer within {self.timeout:g} s")
                if size > MAX_ANSWER:
                    raise http.client.HTTPException(f"answer of more than {MAX_ANSWER} bytes")
            if response.length:  # read1 does not complain about a missing rest
                raise http.client.IncompleteRead(b"".join(pieces), response.length)
            return response.status, b"".join(pieces)
        finally:
            connection.close()


def _check(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        good = False
    if not good:
        raise ValueError(f"retrieval url {url!r}: expected http://HOST:PORT/retrieve")
