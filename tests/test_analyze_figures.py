"""Figures: the same bytes each time; axes with units; seeds and numbers of tasks on them; told apart in grey."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

import analyze
from analysis import curves, points
from analysis.draw import LOOKS, OTHERS, band, looks, save
from analysis.foreign import read_runs
from analysis.groups import groups
from analysis.logs import read_run
from analysis.tokens import gaps_by_method
from tests.made_results import everything, run


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    root = everything(tmp_path_factory.mktemp("made") / "results", n=12)
    return analyze.experiments(read_runs(root))


@pytest.fixture(scope="module")
def drawn(experiment):
    return analyze.draw(experiment, gaps_by_method(experiment["tokens"]), [])


def test_every_figure_is_drawn(drawn):
    assert sorted(drawn) == [
        "ablation_forest", "baselines_forest", "cost", "data_fraction", "entropy_kl", "horizon", "length_grid",
        "long_run", "models", "skill_noise", "success_grid", "token_gaps", "tokens_forest", "tva", "unseen", "webshop",
    ]  # fmt: skip


def test_out_says_where_everything_goes(tmp_path):
    root = everything(tmp_path / "results", n=12)
    analyze.main(["--results", str(root), "--out", str(tmp_path / "elsewhere")])
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["figures", "tables"]
    assert not (root / "tables").exists()


def test_axes_units_seeds_and_numbers(drawn):
    for name, figure in drawn.items():
        said = " ".join(text.get_text() for text in figure.texts)
        assert "seeds 0, 1" in re.sub(r"\s+", " ", said) and "n = 12 episodes" in said, name
        assert "panel aaaabbbbccccdddd" in said or name == "unseen", name
        for axes in figure.axes:
            if axes.axison:
                assert axes.get_xlabel() and (axes.get_ylabel() or axes.get_yticklabels()), name
        shown = figure.axes[0].get_ylabel() + figure.axes[0].get_xlabel()
        assert re.search(r"%|turns|seconds|nats|tokens", shown), name


def test_the_same_bytes_each_time(experiment, tmp_path):
    for folder in ("a", "b"):
        for function in (curves.success_grid, points.cost):
            save(function(experiment["main"], []), tmp_path / folder, function.__name__)
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name
    svg = (tmp_path / "a" / "cost.svg").read_text()
    assert "dc:date" not in svg and "matplotlib.org" not in svg.split("<defs>")[1]


def test_looks_differ_in_grey():
    dressed = [*LOOKS.values(), *OTHERS]
    assert len({(str(dashes), marker) for _, dashes, marker in dressed}) == len(dressed)
    assert all(0.05 < np.dot(to_rgb(colour), (0.3, 0.59, 0.11)) < 0.75 for colour, _, _ in dressed)


def test_a_repeated_label_gets_another_look():
    first, second, third = looks(["ADRS", "ADRS", "unheard of"])
    assert first == LOOKS["ADRS"] and second == OTHERS[0] and third == OTHERS[1]


def test_band_is_at_the_steps_that_all_runs_share(tmp_path):
    made = [run(tmp_path / "main" / "a"), run(tmp_path / "main" / "b", seed=1, last=12)]
    steps, mean, low, high = band(groups(map(read_run, made))[0])
    assert steps.tolist() == [0, 5, 10]
    assert np.all(low <= mean) and np.all(mean <= high) and np.all(high > low)


def test_partial_runs_are_named_on_the_figure(tmp_path):
    made = groups([read_run(run(tmp_path / "main" / "a", last=12))])
    said = " ".join(text.get_text() for text in curves.success_grid(made, []).texts)
    assert "Partial: main/a is partial: step 12 of 20" in said


def test_the_authors_logs_stand_behind_ours_in_grey(experiment, shared):
    authors = read_runs(shared / "paper/logs/curves_300step")  # longer runs than ours, of the main experiment too
    figure = analyze.draw({"main": experiment["main"]}, ({}, []), authors)["success_grid"]
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    grpo = lines["authors, GRPO"]
    assert grpo.get_color() == "0.72" and grpo.get_zorder() < lines["GRPO"].get_zorder()
    assert grpo.get_xdata().max() == 20  # as long as ours
    assert grpo.get_ydata()[0] == pytest.approx(100 * authors[3].evals[0].success)
    assert "authors, GRPO" not in {line.get_label() for line in figure.axes[1].get_lines()}  # no search log there


def test_the_authors_logs_alone(shared, tmp_path):
    authors = read_runs(shared / "paper/logs")
    figure = curves.success_grid(groups(r for r in authors if r.table in ("main", "long")), [])
    assert figure.axes[0].get_title() == "alfworld, Qwen2.5-3B-Instruct"
    assert len([axes for axes in figure.axes if axes.axison]) == 9
    path = save(curves.long_run(groups(r for r in authors if r.table == "long"), []), tmp_path, "x")[1]
    image = np.asarray(Image.open(io.BytesIO(Path(path).read_bytes())).convert("L"))
    assert image.shape[1] > 800 and (image < 100).mean() > 0.005  # something dark is drawn
