"""The embedded index as a retrieval server: what client.py and the training code of Search-R1, verl and verl-agent ask.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

    python -m envs.search.serve --corpus corpus.jsonl --port 8000

POST /retrieve takes {"queries": [text], "topk": n, "return_scores": true} (Search-R1, verl), or "query" with one text
(verl-agent), and answers {"result": [[{"document": {"id", "contents"}, "score"}]]}, one list a query; without
return_scores the documents stand alone. GET /healthz tells whether it is up. Contract: searchqa.md 1.6. Left out:
dense retrieval; authentication, so it listens on this machine alone unless told otherwise.
"""

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from envs.search.bm25 import LocalBM25
from envs.search.encyclopaedia import encyclopaedia
from envs.search.passages import Passage, Retriever

MAX_BODY = 16 * 2**20  # bytes
MAX_TOPK = 1000


class _Bad(Exception):
    """A request that cannot be answered: its HTTP status, and what is wrong with it."""

    def __init__(self, status: int, detail: str):
        super().__init__(detail)
        self.status, self.detail = status, detail


def answer(retriever: Retriever, request: object, topk: int) -> dict:
    """The response to a request's JSON; `topk` where it asks for none. Raises _Bad with status 422."""
    if not isinstance(request, dict):
        raise _Bad(422, "the body must be a JSON object")
    queries = request.get("queries", [request["query"]] if "query" in request else None)
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise _Bad(422, "give `queries`, a list of texts, or `query`, a text")
    wanted = request.get("topk")
    if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= MAX_TOPK):
        raise _Bad(422, f"`topk` must be a whole number up to {MAX_TOPK}, or null for the server's {topk}")
    found = retriever.batch(queries, wanted or topk)
    with_scores = bool(request.get("return_scores", False))
    return {"result": [[_document(passage, with_scores) for passage in passages] for passages in found]}


def _document(passage: Passage, with_score: bool) -> dict:
    document = {"id": passage.id, "contents": passage.contents}
    return {"document": document, "score": passage.score} if with_score else document


class Handler(BaseHTTPRequestHandler):
    """One request. Its server carries `retriever` and `topk`."""

    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds a client may be silent

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._send(200, {"status": "ok", "searched": self.server.retriever.fingerprint})
        else:
            self._send(404, {"detail": "GET /healthz or POST /retrieve"})

    def do_POST(self) -> None:
        try:
            if self.path != "/retrieve":
                raise _Bad(404, "GET /healthz or POST /retrieve")
            self._send(200, answer(self.server.retriever, self._json(), self.server.topk))
        except _Bad as bad:
            self.close_connection = True  # the rest of the body may be unread
            self._send(bad.status, {"detail": bad.detail})

    def _json(self) -> object:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _Bad(411, "a Content-Length header is needed")
        if int(length) > MAX_BODY:
            raise _Bad(413, f"the body is larger than {MAX_BODY} bytes")
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise _Bad(422, f"the body is not JSON: {error}") from error

    def _send(self, status: int, body: dict) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args) -> None:
        """Silent: a line a request costs more than the search (searchqa.md 1.6)."""


class Server(ThreadingHTTPServer):
    """Listens at once (port 0: any free one, see `server_address`); `serve_forever` answers."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, retriever: Retriever, host: str = "127.0.0.1", port: int = 0, topk: int = 3):
        self.retriever, self.topk = retriever, topk
        super().__init__((host, port), Handler)

    def handle_error(self, request, client_address) -> None:
        """A client that went away is no event; anything else is."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serves BM25 over a corpus.", allow_abbrev=False)
    parser.add_argument("--corpus", type=Path, help="JSON lines with id, title, text; default: the encyclopaedia")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--topk", type=int, default=3, help="passages where a request does not say")
    args = parser.parse_args()
    try:
        print("loading the index ...", flush=True)
        retriever = LocalBM25.open(args.corpus) if args.corpus else LocalBM25.build(encyclopaedia().passages)
        server = Server(retriever, args.host, args.port, args.topk)
    except (OSError, ValueError) as error:
        parser.exit(1, f"serve: {error}\n")
    host, port = server.server_address[:2]
    print(f"{len(retriever.passages)} passages at http://{host}:{port}/retrieve (stop with Ctrl-C)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
