"""The credit page: inert data, and what a real browser makes of it (skipped where there is no Chromium)."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from analysis.page import page, run_data
from tests.made_results import episode, run

HOSTILE = '</script><script>document.title = "owned"</script><img src=x onerror="document.title = 1"> <!-- & ]]> '
BIDI = "\u202etxt.exe\u202c \u200b\ud83d \x00"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    root = tmp_path_factory.mktemp("made") / "main"
    made = [run(root / "adrs-tva-s0", tva=True), run(root / "grpo-s0", method="none")]
    evil = episode(np.random.default_rng(5), 20, "fresh", "<b>task-0</b>")
    turn = evil["turns"][0]
    turn |= {"prompt": HOSTILE + BIDI, "observation": HOSTILE, "action": HOSTILE, "response": HOSTILE}
    turn["tokens"][1:4] = [HOSTILE, BIDI, " a\nb"]
    plain = {"step": 20, "set": "eval-0.4", "task": "task-9", "task_type": "pick", "return": 0.0, "won": False,
             "turns": [{"prompt": "p", "response": "x", "observation": "o", "admissible": [], "action": "x",
                        "valid": False, "tokens": ["x"], "student_logp": [-0.5]}]}  # fmt: skip
    with open(made[0] / "episodes.jsonl", "a") as file:
        file.write(json.dumps(evil) + "\n" + json.dumps(plain) + "\n")
    return made


@pytest.fixture(scope="module")
def html(folders) -> str:
    return page(folders)


def test_the_page_is_one_inert_file(html):
    html.encode("utf-8")  # no lone surrogate
    assert html.count("</script>") == 2 and html.count("<script") == 2 and "<img" not in html
    data = re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1]
    own = html.replace(data, "")
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|https?://|fetch\(|XMLHttp|innerHTML|eval\(", own)
    assert data.isascii() and not set("<>&") & set(data)
    assert HOSTILE in json.dumps(json.loads(data), ensure_ascii=False).replace('\\"', '"')  # it is all there


def test_the_policy_names_this_style_and_this_script(html):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    for tag in ("style", "script"):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_what_a_page_holds(folders):
    data = run_data(folders[0])
    assert data["name"] == "main/adrs-tva-s0" and data["about"].startswith("ADRS+TVA, env alfworld, seed 0")
    turn = data["episodes"][0]["turns"][1]
    assert [turn["kinds"].count(k) for k in range(4)] == [2, 5, 4, 5]
    assert len(turn["adv"]) == len(turn["teacher"]) == len(turn["tokens"]) == 16 and turn["base"] == 0.5
    assert data["episodes"][-1]["task"] == "task-9" and data["episodes"][-1]["turns"][0]["adv"] is None


def test_many_episodes_are_thinned_and_the_page_says_so(tmp_path):
    folder = run(tmp_path / "main" / "a")
    line = (folder / "episodes.jsonl").read_text().splitlines()[0]
    (folder / "episodes.jsonl").write_text((line + "\n") * 130)
    data = run_data(folder)
    assert len(data["episodes"]) == 60 and "60 of 130 saved episodes, evenly" in data["about"]


def test_what_gives_no_page(tmp_path, folders):
    with pytest.raises(FileNotFoundError, match="kept no episodes"):
        folder = run(tmp_path / "main" / "a")
        (folder / "episodes.jsonl").unlink()
        page([folder])
    (folder / "episodes.jsonl").write_text("")
    with pytest.raises(ValueError, match="no whole episode"):
        page([folder])
    with pytest.raises(ValueError, match="given 3 times"):
        page(folders + folders[:1])


class Browser:
    """A headless Chromium, driven over the WebDriver protocol."""

    def __init__(self, folder: Path):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        port = None
        while port is None:
            line = self.driver.stdout.readline()
            if not line:
                raise RuntimeError("chromedriver ended")
            port = re.search(r"started successfully on port (\d+)", line)
        self.base = f"http://127.0.0.1:{port[1]}/session"
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                 "--window-size=1300,900", "--disable-background-networking", "--disable-component-update",
                 "--disable-sync",
                 f"--user-data-dir={folder}"]  # fmt: skip
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": flags},
                  "goog:loggingPrefs": {"browser": "ALL"}}  # fmt: skip
        self.base += "/" + self.ask("POST", "", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def ask(self, method: str, path: str, body: dict | None = None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, path: Path) -> None:
        self.ask("POST", "/url", {"url": path.as_uri()})

    def js(self, code: str):
        return self.ask("POST", "/execute/sync", {"script": code, "args": []})

    def press(self, keys: str) -> None:
        events = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": events}]})

    def media(self, name: str, value: str) -> None:
        params = {"features": [{"name": name, "value": value}]}
        self.ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": params})

    def close(self) -> None:
        self.ask("DELETE", "")
        self.driver.terminate()
        self.driver.wait(10)


@pytest.fixture(scope="module")
def browser(tmp_path_factory, html):
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("no chromium and chromedriver on this machine")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    path = tmp_path_factory.mktemp("page") / "credit.html"
    path.write_text(html, encoding="utf-8")
    browser.open(path)
    yield browser
    browser.close()


def quantity(browser) -> str:
    return browser.js("return document.querySelector('[name=quantity]:checked').id")


def test_nothing_hostile_ran_and_nothing_was_loaded(browser):
    assert browser.js("return document.title") == "Credit, token by token"
    assert browser.js("return document.querySelectorAll('img, b, iframe, script').length") == 2  # its own two scripts
    assert browser.js("return performance.getEntriesByType('resource').length") == 0
    assert browser.ask("POST", "/se/log", {"type": "browser"}) == []  # not one error or violation
    browser.js("""const script = document.createElement('script');
        script.textContent = 'window.owned = 1'; document.body.append(script); script.remove();""")
    assert browser.js("return window.owned === undefined")
    assert "Content Security Policy" in str(browser.ask("POST", "/se/log", {"type": "browser"}))


def test_two_runs_stand_side_by_side_at_the_same_episode(browser):
    browser.js("document.querySelector('.pane select').value = 1; "
               "document.querySelector('.pane select').dispatchEvent(new Event('change'))")  # fmt: skip
    panes = browser.js("""return [...document.querySelectorAll('.pane')].map((p) => [p.querySelector('h2').textContent,
        p.getBoundingClientRect().left, p.querySelector('select').selectedOptions[0].textContent]);""")
    assert [name for name, _, _ in panes] == ["main/adrs-tva-s0", "main/grpo-s0"]
    assert panes[0][1] < panes[1][1] and panes[0][2] == panes[1][2]


def show(browser, task: str) -> None:
    index = browser.js(f"return runs[0].episodes.findIndex(e => e.task === {json.dumps(task)})")
    browser.js(f"panes[0].go({index}); follow(panes[0]); draw()")


def test_hostile_text_is_shown_as_text(browser):
    show(browser, "<b>task-0</b>")
    tokens = browser.js("return [...document.querySelectorAll('.pane .token')].map(t => t.firstChild.textContent)")
    pane = browser.js("return document.querySelector('.pane').textContent")
    assert HOSTILE.strip() in pane and "<b>task-0</b>" in pane
    assert "‹U+202E›txt.exe‹U+202C› ‹U+200B›‹U+D83D› ‹U+0000›" in pane
    assert "\u202e" not in pane and "\ud83d" not in pane
    assert any("a⏎\nb" in token for token in tokens)


def test_colours_follow_the_numbers(browser):
    show(browser, "task-1")
    browser.js("choose(1)")
    shown = browser.js("""const turn = panes[0].episode.turns[0];
        const tokens = [...document.querySelector('.pane .tokens').children];
        return tokens.map((t, i) => [turn.adv[i] - turn.base, getComputedStyle(t).backgroundColor, t.title]);""")
    for added, colour, title in shown:
        red, _, blue = map(int, re.match(r"rgba?\((\d+), (\d+), (\d+)", colour).groups())
        assert (blue > red) == (added > 0), (added, colour)
        assert f"added to the base advantage (gate × term) {added:+.3f}" in title and "base advantage +0.500" in title
    strongest = max(shown, key=lambda row: abs(row[0]))[1]
    weakest = min(shown, key=lambda row: abs(row[0]))[1]
    opacity = [float(re.search(r"([\d.]+)\)$", colour)[1]) for colour in (strongest, weakest)]
    assert opacity[0] > opacity[1]


def test_every_quantity_by_key(browser):
    show(browser, "task-1")
    browser.js("document.activeElement.blur()")
    for key, name in zip("12345", ("advantage", "paid", "gap", "student", "gate"), strict=True):
        browser.press(key)
        assert quantity(browser) == f"quantity-{name}"
    turn = browser.js("choose(2); return panes[0].episode.turns[0]")
    rows = browser.js("""return [...document.querySelector('.pane table').rows]
        .map((row) => [...row.cells].map((cell) => cell.textContent));""")
    gaps = [t - s for t, s, k in zip(turn["teacher"], turn["student"], turn["kinds"], strict=True) if k == 0]
    assert rows[1][:2] == ["action", "2"] and float(rows[1][2]) == pytest.approx(np.mean(gaps), abs=1e-3)


def test_what_was_not_saved_is_said(browser):
    show(browser, "task-9")
    browser.js("choose(1)")
    said = browser.js("return document.querySelector('.pane').textContent")
    assert "not saved here: added to the base advantage (gate × term)" in said
    assert "not in the asked form" in browser.js("return document.querySelector('.pane h3').textContent")


def test_keys_step_through_tokens_and_episodes(browser):
    show(browser, "task-1")
    browser.js("choose(0); document.querySelector('.pane .token').focus()")
    first = browser.js("return document.getElementById('token').textContent")
    browser.press("\ue014")  # right arrow
    second = browser.js("return document.getElementById('token').textContent")
    assert first.startswith("“<think>”, tag · advantage of the token") and second.startswith("“i”, style")
    browser.press("\ue012")  # left arrow
    assert browser.js("return document.getElementById('token').textContent") == first
    before = browser.js("return panes[0].index")
    browser.press("n")
    assert browser.js("return panes[0].index") == before + 1
    browser.press("p")
    assert browser.js("return panes[0].index") == before


def test_marks_and_numbers(browser):
    show(browser, "task-1")
    border = "return getComputedStyle(document.querySelector('.pane .action')).borderBottomStyle"
    number = "return getComputedStyle(document.querySelector('.pane .number')).display"
    assert browser.js(border) == "solid" and browser.js(number) == "none"
    browser.js("document.activeElement.blur()")
    browser.press("cv")
    assert browser.js(border) == "none" and browser.js(number) != "none"
    browser.press("cv")
    assert browser.js("return getComputedStyle(document.querySelector('.pane .object')).borderBottomStyle") == "dotted"


def luminance(browser, what: str) -> float:
    colour = browser.js(f"return getComputedStyle(document.body).{what}")
    return float(np.dot(list(map(int, re.findall(r"\d+", colour)[:3])), (0.3, 0.59, 0.11)))


def test_dark_mode(browser):
    browser.media("prefers-color-scheme", "light")
    assert luminance(browser, "backgroundColor") > 230 > 100 > luminance(browser, "color")
    browser.media("prefers-color-scheme", "dark")
    assert luminance(browser, "backgroundColor") < 60 < 200 < luminance(browser, "color")
    browser.media("prefers-color-scheme", "light")


def test_it_prints_with_its_numbers(browser):
    assert base64.b64decode(browser.ask("POST", "/print", {}))[:5] == b"%PDF-"
    browser.ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"media": "print"}})
    assert browser.js("return getComputedStyle(document.querySelector('.pane .number')).display") != "none"
    assert browser.js("return getComputedStyle(document.querySelector('header fieldset')).display") == "none"
    browser.ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"media": ""}})


def test_a_narrow_window_stacks_the_runs(browser):
    browser.ask("POST", "/window/rect", {"width": 520, "height": 900})
    lefts = browser.js("return [...document.querySelectorAll('.pane')].map(p => p.getBoundingClientRect().left)")
    assert lefts[0] == lefts[1]
    assert browser.js("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.ask("POST", "/window/rect", {"width": 1300, "height": 900})
