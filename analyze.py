"""From results/ to every table, figure and page, and the audit of a paper's own logs. Needs no torch.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

    python analyze.py                                    results/tables/*.{csv,md,tex}, results/figures/*.{svg,png}
    python analyze.py --logs DIR                         the same, with other people's logs in grey behind ours
    python analyze.py --logs DIR --paper table2.csv      the audit: findings, then results/audit/*
    python analyze.py --page RUN [--page RUN]            credit.html: what every token was paid, one run or two
    python analyze.py --check                            does every number in README.md come from a log?
    python analyze.py --write                            put today's tables and numbers into README.md

An experiment is a folder of results/; each has its own figures (FIGURES). Success is printed as
`94.5 [89.1, 97.3] (121/128, 1 run)`. How README marks a number: analysis/check.py. Runs that were cut short are used
and called partial; panels with different hashes are refused. Left out: every computation (analysis/).
"""

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from analysis import audit, check, curves, health, page, points, qa, tables, tokens
from analysis.draw import said_of, save
from analysis.findings import findings
from analysis.foreign import read_runs
from analysis.groups import Group, groups
from analysis.logs import Run
from analysis.paper import read_table2
from analysis.render import Table, parse

FIGURES: dict[str, tuple[Callable, ...]] = {
    "main": (curves.success_grid, curves.length_grid, curves.entropy_kl, curves.webshop, points.cost),
    "long": (curves.long_run,), "tva": (curves.tva,), "tva-noise": (points.skill_noise,),
    "data": (points.data_fraction,), "models": (points.models,), "horizon": (points.horizon,),
    "unseen": (points.unseen,),
}  # fmt: skip
TOKENS = ("tokens", "main")  # the first of these experiments that there is makes the table and figure of token gaps
Gaps = tuple[dict[str, list[dict]], list[str]]  # what tokens.gaps_by_method gives


def experiments(runs: list[Run]) -> dict[str, list[Group]]:
    """The groups of each experiment, by name."""
    names = sorted({run.table for run in runs})
    return {name: groups(run for run in runs if run.table == name) for name in names}


def scored(experiment: dict[str, list[Group]]) -> list[Group]:
    """The groups whose episodes make the table and figure of token gaps."""
    return next((experiment[name] for name in TOKENS if name in experiment), [])


def logged(folder: Path) -> dict[tuple[str, str], str]:
    """What the authors' own logs show at step 150, (environment, method) -> percent, from the last audit: the runs of
    the 3B model with all tasks and turns. Empty before the first audit."""
    path, found = folder / "audit_cells.csv", {}
    if path.is_file():
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["model"] == "Qwen2.5-3B-Instruct":
                    found.setdefault((row["environment"], row["method"]), []).append(row["log"])
    return {key: " and ".join(values) for key, values in found.items()}


def our_tables(runs: list[Run], experiment: dict[str, list[Group]], gaps: Gaps, results: Path) -> dict[str, Table]:
    """Every table of our results, by name."""
    authors = logged(results / "audit")
    out = [tables.provenance(runs)]
    for name, members in experiment.items():
        out += [tables.outcomes(name, members, authors), tables.by_type(name, members)]
        out += [tables.pairs(name, members), tables.cost(name, members)]
    if gaps[0]:
        out.append(tokens.gap_table("tokens", *gaps))
    return {table.name: table for table in out if table.rows}


def draw(experiment: dict[str, list[Group]], gaps: Gaps, authors: list[Run]) -> dict[str, Figure]:
    """Every figure that some groups give, by name."""
    out = {}
    for name, members in experiment.items():
        grey = [run for run in authors if run.table == name or (run.table, name) == ("long", "main")]
        for function in FIGURES.get(name, (points.forest,)):
            here = [group for group in members if group.env == "webshop" or function is not curves.webshop]
            if here:
                title = function.__name__ if name in FIGURES else f"{name}_{function.__name__}"
                out[title] = function(here, grey)
    if gaps[0]:
        said = said_of(scored(experiment), "Bands: 95 %, bootstrap over episodes.") + gaps[1]
        out["token_gaps"] = curves.token_gaps(gaps[0], said)
    return out


def write(made: dict[str, Table], drawn: dict[str, Figure], table_folder: Path, figure_folder: Path) -> None:
    """Writes tables and figures and says where."""
    for table in made.values():
        table.write(table_folder)
    for name, figure in drawn.items():
        save(figure, figure_folder, name)
    print(f"{len(made)} tables in {table_folder}, {len(drawn)} figures in {figure_folder}")


def remarks(runs: list[Run]) -> None:
    """Says on stderr what was odd about the logs."""
    for note in (note for run in runs for note in [*run.notes, run.partial] if note):
        print(f"note: {note}", file=sys.stderr)


def run_audit(logs: Path, paper_path: Path, out: Path) -> None:
    """Prints findings and tables of other people's logs; tables and figures go to `out`."""
    runs, paper = read_runs(logs), read_table2(paper_path)
    remarks(runs)
    made = audit_tables(runs, paper)
    print("Findings\n")
    print("\n".join(f"- {finding}" for finding in findings(runs, paper)) + "\n")
    print("\n".join(table.markdown for table in made.values()))
    whole = {"main": groups(run for run in runs if run.table in ("main", "long"))}
    drawn = draw({name: members for name, members in (experiments(runs) | whole).items() if members}, ({}, []), [])
    write(made, drawn, out, out)


def audit_tables(runs: list[Run], paper: audit.Paper) -> dict[str, Table]:
    made = audit.tables(runs, paper) + qa.tables(runs, paper) + health.tables(runs)
    return {table.name: table for table in made if table.rows}


def known_tables(args: argparse.Namespace) -> dict[str, Table]:
    """What README may quote: today's tables of our results, and the audit's (made anew with --logs and --paper, else
    as the last audit wrote them)."""
    if args.logs and args.paper:
        audited = audit_tables(read_runs(args.logs), read_table2(args.paper))
    else:
        paths = sorted((args.results / "audit").glob("*.md"))
        audited = {path.stem: parse(path.stem, path.read_text(encoding="utf-8")) for path in paths}
    runs = [run for run in read_runs(args.results) if run.ours] if args.results.is_dir() else []
    experiment = experiments(runs)
    return our_tables(runs, experiment, tokens.gaps_by_method(scored(experiment)), args.results) | audited


def stale(made: dict[str, Table], results: Path) -> list[str]:
    """Committed table files that are not what the logs give."""
    out = []
    for folder in (results / "tables", results / "audit"):
        for path in sorted(folder.glob("*.md")):
            table = made.get(path.stem)
            if table is None or path.read_text(encoding="utf-8") != table.markdown:
                out.append(f"{path}: not what the logs give; run analyze.py again")
    return out


def run_check(args: argparse.Namespace) -> None:
    """Exits with what is wrong with README and with the committed tables; with --write mends README first."""
    made = known_tables(args)
    text = args.readme.read_text(encoding="utf-8")
    if args.write:
        text = check.fill(text, made)
        args.readme.write_text(text, encoding="utf-8", newline="\n")
    wrong = [f"{args.readme}, {complaint}" for complaint in check.complaints(text, made)] + stale(made, args.results)
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{args.readme}: every number comes from a log ({len(made)} tables)")


def run_page(folders: list[Path], out: Path) -> None:
    html = page.page(folders)
    out.write_text(html, encoding="utf-8", newline="\n")
    print(f"{out}: {len(html) / 1e6:.1f} MB, opens in any browser, loads nothing")


def parse_args(args: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of our runs")
    parser.add_argument("--logs", type=Path, help="folder of logs, or one log: ours, or verl's")
    parser.add_argument("--paper", type=Path, help="Table 2 as CSV: audit --logs against it")
    parser.add_argument(
        "--page", type=Path, action="append", metavar="RUN", help="folder of a run; twice: side by side"
    )
    parser.add_argument("--out", type=Path, help="file of the page; folder of the audit, or of tables and figures")
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    parser.add_argument("--check", action="store_true", help="fail where a number in README is not what the logs give")
    parser.add_argument("--write", action="store_true", help="put the logs' numbers into README, then check")
    return parser.parse_args(args)


def main(args: list[str] | None = None) -> None:
    options = parse_args(args)
    if options.paper and not options.logs:
        raise ValueError("--paper says what was printed; name the logs to hold against it with --logs DIR")
    if options.page:
        run_page(options.page, options.out or Path("credit.html"))
    elif options.check or options.write:
        run_check(options)
    elif options.paper:
        run_audit(options.logs, options.paper, options.out or options.results / "audit")
    else:
        runs = [run for run in read_runs(options.results) if run.ours]
        if not runs:
            raise ValueError(f"{options.results}: no run in it (a run is a folder with a config.json)")
        authors = [run for run in read_runs(options.logs) if not run.ours] if options.logs else []
        remarks(runs + authors)
        experiment = experiments(runs)
        gaps = tokens.gaps_by_method(scored(experiment))
        made, drawn = our_tables(runs, experiment, gaps, options.results), draw(experiment, gaps, authors)
        out = options.out or options.results
        write(made, drawn, out / "tables", out / "figures")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
