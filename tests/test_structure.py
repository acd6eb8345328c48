"""The shape of the repository: which way imports point, what cannot reach a skill, that flags are used."""

import ast
import re
from dataclasses import fields

from settings import Settings
from tests.conftest import ROOT

LINE = ["policy", "rollout", "teacher", "shaping", "tva", "grpo", "gigpo", "sdar", "rlsd"]  # then settings, train
SERVE = {"policy"}  # may be imported from anywhere behind it


def imports(file: str) -> set[str]:
    """The repository's own modules that a file imports."""
    own = {path.stem for path in ROOT.glob("*.py")} | {"envs", "analysis"}
    found = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found & own


def test_imports_point_left():
    for place, name in enumerate(LINE):
        assert imports(f"{name}.py") <= {"envs", *LINE[:place]}, name
    assert imports("shaping.py") == imports("tva.py") == imports("grpo.py") == imports("sdar.py") == set()
    assert imports("rlsd.py") == set() and imports("gigpo.py") == {"grpo"}


def test_environments_and_evaluation_cannot_reach_a_skill():
    for path in (ROOT / "envs").rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        assert imports(name) <= {"envs"}, name
        code = [line for line in path.read_text().splitlines() if "open(" in line or "Path(" in line]
        assert not any("skills" in line for line in code), name
    reached, waiting = set(), ["evaluate.py"]
    while waiting:
        for module in imports(waiting.pop()) - reached - {"envs"}:
            reached.add(module)
            waiting.append(f"{module}.py")
    assert "teacher" not in reached and "train" not in reached and reached


def test_analysis_imports_no_torch():
    for path in [ROOT / "analyze.py", *(ROOT / "analysis").rglob("*.py")]:
        assert not re.search(r"^\s*(import|from) (torch|transformers)\b", path.read_text(), re.MULTILINE), path.name


def test_transformers_and_peft_are_imported_where_a_model_is_made():
    pattern = re.compile(r"(import|from) (transformers|peft)")
    code = {path.name: path.read_text() for path in ROOT.glob("*.py") if path.name != "card.py"}  # it shows an import
    users = {name for name, text in code.items() if pattern.search(text)}
    assert users <= {"policy.py", "rollout.py", "settings.py", "record.py", "checkpoint.py", "warmstart.py", "plan.py"}


def test_every_setting_is_used_and_explained():
    code = "".join((ROOT / name).read_text() for name in ("start.py", "train.py", "update.py", "settings.py"))
    for field in fields(Settings):
        assert field.metadata["help"], field.name
        assert field.name == "preset" or re.search(rf"\bs\.{field.name}\b", code), field.name


def test_no_file_outgrows_one_sitting():
    for path in [*ROOT.glob("*.py"), *(ROOT / "envs").rglob("*.py"), *(ROOT / "analysis").rglob("*.py")]:
        assert len(path.read_text().splitlines()) <= 540, path.name


def test_readme_points_at_the_lines_it_names():
    links = re.findall(r"\[(\w+\.py):(\d+)\]\(\1#L\2\) `(\w+)`", (ROOT / "README.md").read_text())
    assert len(links) >= 8
    for file, line, name in links:
        assert re.match(rf"(def|class) {name}\b", (ROOT / file).read_text().splitlines()[int(line) - 1]), (file, name)


def test_readme_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+?)(?:#L\d+)?\)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target
