"""Search: the HTTP client against a real server over loopback, which fails in every way that servers do."""

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

import envs
from envs.search import SearchQA
from envs.search.bm25 import LocalBM25
from envs.search.client import HttpRetriever
from envs.search.encyclopaedia import encyclopaedia
from envs.search.passages import RetrievalError
from envs.search.serve import Handler, Server, answer

TITLES = sorted({passage.title for passage in encyclopaedia().passages})
HTML = b"<html><body>502 Bad Gateway <answer>X</answer></body></html>"


class Faulty(Handler):
    """Plays the server's faults in order, one a request, then behaves. Notes what it was asked."""

    def do_POST(self):
        server = self.server
        body = self._json()
        with server.lock:
            server.asked.append(body)
            fault = server.faults.pop(0) if server.faults else ""
            server.busy += 1
            server.most_busy = max(server.most_busy, server.busy)
        time.sleep(server.delay)
        with server.lock:
            server.busy -= 1
        self.play(fault, body)

    def play(self, fault: str, body: dict) -> None:
        good = json.dumps(self.respond(body)).encode() if not fault.isdecimal() else b""
        if fault.isdecimal():
            self.reply(int(fault), HTML if fault == "502" else b'{"detail": "field required"}')
        elif fault == "html":
            self.reply(200, HTML)
        elif fault == "empty":
            self.reply(200, b"")
        elif fault == "half":  # promises more than it sends
            self.reply(200, good[: len(good) // 2], length=len(good))
        elif fault == "half list":  # whole JSON, results of half of the queries
            result = self.respond(body)["result"]
            self.reply(200, json.dumps({"result": result[: len(result) // 2]}).encode())
        elif fault == "no lists":
            self.reply(200, b'{"result": [{"document": {}}]}')
        elif fault == "deep":
            self.reply(200, b"[" * 100_000)
        elif fault == "reset":
            self.close_connection = True
            self.connection.close()
        elif fault == "slow":
            time.sleep(0.6)
            self.reply(200, good)
        elif fault == "drip":
            self.reply(200, b"", length=len(good))
            for at in range(100):
                self.wfile.write(good[at : at + 1])
                time.sleep(0.02)
        else:
            self.reply(200, good)

    def respond(self, body: dict) -> dict:
        return answer(self.server.retriever, body, 3)

    def reply(self, status: int, body: bytes, length: int | None = None) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)


class OnlyOneQuery(Faulty):
    """verl-agent's contract: `query` alone, and documents without scores around them."""

    def play(self, fault, body):
        if "query" not in body:
            self.reply(422, b'{"detail": [{"loc": ["body", "query"], "msg": "field required"}]}')
        else:
            super().play(fault, body)

    def respond(self, body):
        return super().respond({"queries": [body["query"]], "topk": body["topk"], "return_scores": False})


class SmallBatches(Faulty):
    """Runs out of memory on more than 40 queries."""

    def play(self, fault, body):
        super().play("500" if len(body["queries"]) > 40 else fault, body)


@pytest.fixture(scope="module")
def local() -> LocalBM25:
    return LocalBM25.build(encyclopaedia().passages)


@contextmanager
def serving(local, handler=Faulty, faults=(), delay=0.0, port=0):
    server = Server(local, port=port)
    server.RequestHandlerClass = handler
    server.faults, server.delay, server.asked, server.lock = list(faults), delay, [], threading.Lock()
    server.busy = server.most_busy = 0
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}/retrieve"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def client(url: str, **options) -> HttpRetriever:
    return HttpRetriever(url, **{"timeout": 5.0, "pause": 0.01, "retries": 3} | options)


def patience(fault: str) -> float:
    """Seconds to wait: short where the fault is slowness, long on a busy machine."""
    return 0.3 if fault in ("slow", "drip") else 5.0


FAULTS = ["500", "502", "503", "429", "html", "empty", "half", "half list", "no lists", "deep", "reset", "slow", "drip"]


@pytest.mark.parametrize("fault", FAULTS)
def test_one_passing_fault_loses_nothing(local, fault):
    with serving(local, faults=["", fault, fault]) as (server, url):  # the first request finds the dialect
        assert client(url, timeout=patience(fault)).batch(TITLES[:100], 3) == local.batch(TITLES[:100], 3)
        assert not server.faults and len(server.asked) == 1 + 2 + 2


def test_every_fault_at_once_loses_nothing(local):
    with serving(local, faults=FAULTS * 2) as (server, url):
        assert client(url, timeout=0.3, retries=12, dialect="queries").batch(TITLES, 3) == local.batch(TITLES, 3)
        assert not server.faults


@pytest.mark.parametrize(
    ("fault", "said"),
    [("500", "HTTP 500: '{\"detail\""), ("html", "502 Bad Gateway"), ("half", "IncompleteRead"), ("reset", "Remote"),
     ("slow", "timed out"), ("drip", "no whole answer within 0.3 s"), ("half list", "expected 1 lists")],
)  # fmt: skip
def test_a_lasting_fault_is_an_error_that_says_what_to_try(local, fault, said):
    with serving(local, faults=["", *[fault] * 50]) as (_, url), pytest.raises(RetrievalError) as caught:
        client(url, timeout=patience(fault), retries=1).batch(["x"], 3)
    message = str(caught.value)
    assert message.startswith("1 of 1 queries failed") and url in message and "curl" in message and said in message


def test_a_refusal_is_not_repeated(local):
    with serving(local, faults=["", "422"]) as (server, url):
        with pytest.raises(RetrievalError, match=r"HTTP 422: .*field required"):
            client(url).batch(["x"], 3)
        assert len(server.asked) == 2


def test_down_is_an_error_and_nothing_found_is_not(local):
    with serving(local) as (_, url):
        assert client(url).batch(["zzz", "qqq"], 3) == [[], []]
    for on_error in ("raise", "observe"):
        gone = client(url, on_error=on_error, retries=1)
        if on_error == "raise":
            with pytest.raises(RetrievalError, match="Connection"):
                gone.batch(["zzz"], 3)
        else:
            (answer,) = gone.batch(["zzz"], 3)
            assert isinstance(answer, RetrievalError)


def test_observe_keeps_what_was_found(local):
    with serving(local, faults=["", *["500"] * 100]) as (server, url):
        retriever = client(url, on_error="observe", retries=0, dialect="queries")
        first = retriever.batch(TITLES[:64], 3)  # remembered
        both = retriever.batch([*TITLES[:64], *TITLES[64:70]], 3)
        assert first == both[:64] == local.batch(TITLES[:64], 3)
        assert all(isinstance(answer, RetrievalError) for answer in both[64:])
        server.faults.clear()
        assert retriever.batch(TITLES[:70], 3) == local.batch(TITLES[:70], 3)


def test_raise_remembers_what_was_found(local):
    with serving(local, faults=["", "500", "500", "500"]) as (server, url):
        retriever = client(url, retries=0, dialect="queries")
        with pytest.raises(RetrievalError, match="64 of 128 queries failed"):
            retriever.batch(TITLES[:128], 3)
        asked = len(server.asked)
        assert retriever.batch(TITLES[:128], 3) == local.batch(TITLES[:128], 3)
        assert len(server.asked) == asked + 1


def test_a_batch_that_a_living_server_refuses_is_split(local):
    with serving(local, SmallBatches) as (server, url):
        assert client(url, retries=1).batch(TITLES[:64], 3) == local.batch(TITLES[:64], 3)
        assert [len(body["queries"]) for body in server.asked] == [1, 64, 64, 32, 32]


def test_what_is_sent(local):
    with serving(local) as (server, url):
        retriever = client(url)
        queries = [*TITLES[:150], *TITLES[:150], 'quote " \\ é \u2028']
        assert retriever.batch(queries, 2) == local.batch(queries, 2)
        assert [len(body["queries"]) for body in server.asked[1:]].count(64) == 2
        assert sorted(q for body in server.asked[1:] for q in body["queries"]) == sorted(set(queries))  # each once
        assert all(body["return_scores"] is True for body in server.asked)
        assert all(body["topk"] == 2 for body in server.asked[1:])
        count = len(server.asked)
        retriever.batch(queries, 2)
        assert len(server.asked) == count  # all remembered
        retriever.batch(queries[:1], 3)
        assert len(server.asked) == count + 1  # another topk is another question
        assert retriever.batch([], 3) == []


def test_at_most_four_requests_at_a_time(local):
    with serving(local, delay=0.02) as (server, url):
        client(url, dialect="queries").batch([f"{title} x" for title in TITLES] + TITLES, 3)
        assert 2 <= server.most_busy <= 4 and len(server.asked) == -(-2 * len(TITLES) // 64)


def test_the_dialect_of_verl_agent_is_found_out(local):
    with serving(local, OnlyOneQuery, faults=["", "", "500"]) as (server, url):
        retriever = client(url)
        retriever.probe(wait=0)
        assert retriever.dialect == "query"
        found = retriever.batch(TITLES[:9], 3)
        want = local.batch(TITLES[:9], 3)
        assert [[p.text for p in passages] for passages in found] == [[p.text for p in passages] for passages in want]
        assert {passage.score for passages in found for passage in passages} == {0.0}  # this server sends none
        assert len(server.asked) == 2 + 9 + 1


def test_servers_take_turns(local):
    with serving(local) as (one, url), serving(local) as (two, other):
        retriever = client(f"{url}, {other}", dialect="queries")
        assert retriever.batch(TITLES, 3) == local.batch(TITLES, 3)
        assert abs(len(one.asked) - len(two.asked)) <= 1


def test_probe_waits_for_a_server_that_loads(local):
    with serving(local) as (server, url):
        port = server.server_address[1]
    started = threading.Event()

    def late():
        time.sleep(0.3)
        with serving(local, port=port):
            started.set()
            time.sleep(1.5)

    thread = threading.Thread(target=late)
    thread.start()
    client(url).probe(wait=10)
    assert started.is_set()
    thread.join()
    with pytest.raises(RetrievalError, match="curl"):
        client(url).probe(wait=0)


def test_an_episode_survives_a_server_that_dies_and_comes_back(local):
    book = encyclopaedia()
    with serving(local) as (server, url):
        port = server.server_address[1]
        search = SearchQA(book.questions, client(url, retries=0), "generated")
        envs_ = [search.make() for _ in range(2)]
        tasks = search.tasks("unseen")[:2]
        for env, task in zip(envs_, tasks, strict=True):
            env.reset(options={"task": task})
        search.step_many(envs_, ["<search> first </search>", "<search> query </search>"])
    responses = [f"<search> {TITLES[0]} </search>", f"<search> {TITLES[1]} </search>"]
    with pytest.raises(RetrievalError):
        search.step_many(envs_, responses)
    assert [env.turns for env in envs_] == [1, 1]
    with serving(local, port=port):
        results = search.step_many(envs_, responses)
    assert all(TITLES[i] in results[i][0] for i in range(2)) and [env.turns for env in envs_] == [2, 2]


def test_observe_goes_on_without_the_server(local):
    with serving(local) as (_, url):
        pass
    search = SearchQA(encyclopaedia().questions, client(url, retries=0, on_error="observe"), "generated")
    env = search.make()
    env.reset(options={"task": search.tasks("seen")[0]})
    observation, reward, terminated, truncated, info = env.step("<search> x </search>")
    assert "did not answer" in observation and info["retrieval_error"] and not (terminated or truncated or reward)


def test_bad_settings():
    for url in ("", "localhost:8000/retrieve", "ftp://x/retrieve", "http://:80/", "http://x:port/", "http://a/r,b"):
        with pytest.raises(ValueError, match="expected http://HOST:PORT/retrieve"):
            HttpRetriever(url)
    with pytest.raises(ValueError, match="on_retrieval_error ignore: unknown"):
        HttpRetriever("http://x/retrieve", on_error="ignore")
    with pytest.raises(ValueError, match="dialect msgpack: unknown"):
        HttpRetriever("http://x/retrieve", dialect="msgpack")


# ------------------------------------------------------------------------------------------ the server


def post(url: str, body: object, headers: dict | None = None) -> tuple[int, dict]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers or {})) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_server_speaks_both_dialects(local):
    with serving(local, Handler) as (_, url):
        want = local.batch(TITLES[:2], 2)
        status, answer = post(url, {"queries": TITLES[:2], "topk": 2, "return_scores": True})
        assert status == 200
        assert [[d["document"]["contents"] for d in documents] for documents in answer["result"]] == [
            [passage.contents for passage in passages] for passages in want
        ]
        assert answer["result"][0][0]["score"] == pytest.approx(want[0][0].score)
        _, plain = post(url, {"queries": TITLES[:3]})  # the original fails here (searchqa.md 1.6)
        assert [len(documents) for documents in plain["result"]] == [3, 3, 3]  # its own topk
        assert set(plain["result"][0][0]) == {"id", "contents"}
        _, single = post(url, {"query": TITLES[0], "topk": None, "return_scores": True})
        assert len(single["result"]) == 1 and single["result"][0][:2] == answer["result"][0]
        assert post(url, {"queries": []}) == (200, {"result": []})


@pytest.mark.parametrize(
    "body", [{}, [], {"queries": "x"}, {"queries": [1]}, {"query": None}, {"query": "x", "topk": "3"},
             {"query": "x", "topk": -1}, {"query": "x", "topk": 10**9}, {"query": "x", "topk": True},
             b"{", b"\xff", b"[" * 100_000]
)  # fmt: skip
def test_the_server_refuses_bad_requests(local, body):
    with serving(local, Handler) as (_, url):
        status, answer = post(url, body)
        assert status == 422 and answer["detail"]
        assert post(url, {"query": "x"})[0] == 200  # and lives on


def test_the_server_answers_for_its_health_and_refuses_the_rest(local):
    with serving(local, Handler) as (_, url):
        with urllib.request.urlopen(url.replace("/retrieve", "/healthz")) as response:
            assert json.load(response) == {"status": "ok", "searched": local.fingerprint}
        assert post(url.replace("/retrieve", "/else"), {})[0] == 404
        assert post(url, b"", {"Content-Length": str(2**40)})[0] == 413


def test_the_command_serves_and_make_domain_searches_it(monkeypatch):
    command = [sys.executable, "-m", "envs.search.serve", "--port", "0"]
    root = envs.__path__[0] + "/.."
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "loading the index ...\n"
            line = process.stdout.readline()
            url = line.split(" at ")[1].split(" ")[0]
            monkeypatch.setenv("SEARCH_URL", url)
            search = envs.load("search", on_retrieval_error="observe")
            assert isinstance(search.retriever, HttpRetriever) and search.retriever.on_error == "observe"
            env = search.make()
            env.reset(options={"task": search.tasks("unseen")[0]})
            assert TITLES[5] in env.step(f"<search> {TITLES[5]} </search>")[0]
        finally:
            process.terminate()


def test_the_command_names_a_missing_corpus(tmp_path):
    command = [sys.executable, "-m", "envs.search.serve", "--corpus", str(tmp_path / "none.jsonl")]
    done = subprocess.run(command, cwd=envs.__path__[0] + "/..", capture_output=True, text=True)
    assert done.returncode == 1 and "none.jsonl" in done.stderr and "Traceback" not in done.stderr
