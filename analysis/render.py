"""From a `Table` to CSV, Markdown and LaTeX (booktabs).

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

One table, three files with the same numbers. In the CSV a measure takes four columns: value, low, high and what it
counts. The Markdown is what README quotes. Left out: what stands in a table (tables.py, audit.py).
"""

import csv
import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from analysis.stats import Measure

Cell = str | Measure
LATEX = str.maketrans(
    {
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "|": r"\textbar{}",
        "–": "--",
        "−": "$-$",
    }
)


def signed(value: float) -> str:
    """A difference with one decimal: +9.4, -6.2, and never -0.0."""
    return f"{round(value, 1) + 0.0:+.1f}"


def chance(p: float | None) -> str:
    """A p value with as many decimals as it deserves."""
    return "–" if p is None else ("<0.0001" if p < 1e-4 else f"{p:.4f}")


@dataclass(frozen=True)
class Table:
    """`rows` of cells under `columns`; the first `index` columns name a row. `notes` stand below it."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    index: int = 1
    notes: list[str] = field(default_factory=list)

    def __post_init__(self):
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.name}: {len(row)} cells under {len(self.columns)} columns: {row}")

    def cell(self, row: str, column: str) -> Cell:
        """The cell under a column in the one row whose first cells, joined by '/', are `row`. Raises ValueError where
        there is no such column, no such row, or more than one."""
        if column not in self.columns:
            raise ValueError(f"table {self.name} has no column '{column}'; it has {', '.join(self.columns)}")
        found = [cells for cells in self.rows if row in _names(cells)]
        if len(found) != 1:
            raise ValueError(f"table {self.name} has {len(found) or 'no'} row{'s' * (len(found) > 1)} '{row}'")
        return found[0][self.columns.index(column)]

    @property
    def markdown(self) -> str:
        def line(cells) -> str:
            return "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"

        rule = "|" + "---|" * len(self.columns)
        body = "\n".join([line(self.columns), rule, *(line(row) for row in self.rows)])
        return f"**{self.title}**\n\n{body}\n" + "".join(f"\n{note}\n" for note in self.notes)

    @property
    def latex(self) -> str:
        def line(cells) -> str:
            return " & ".join(str(cell).translate(LATEX) for cell in cells) + r" \\"

        columns = "l" * self.index + "r" * (len(self.columns) - self.index)
        notes = "".join(f"\n\n{note.translate(LATEX)}" for note in self.notes)
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{self.title.translate(LATEX)}}}",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                line(self.columns),
                r"\midrule",
                *(line(row) for row in self.rows),
                r"\bottomrule",
                r"\end{tabular}" + notes,
                r"\end{table}",
                "",
            ]
        )

    @property
    def csv(self) -> str:
        wide = [any(isinstance(row[i], Measure) for row in self.rows) for i in range(len(self.columns))]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        names = zip(self.columns, wide, strict=True)
        writer.writerow([part for name, w in names for part in ([name, *_parts(name)] if w else [name])])
        for row in self.rows:
            writer.writerow(
                [part for cell, w in zip(row, wide, strict=True) for part in (_spread(cell) if w else [cell])]
            )
        return out.getvalue()

    def write(self, folder: Path) -> list[Path]:
        """NAME.csv, NAME.md and NAME.tex in a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"csv": self.csv, "md": self.markdown, "tex": self.latex}
        paths = [folder / f"{self.name}.{ending}" for ending in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            path.write_text(text, encoding="utf-8", newline="\n")
        return paths


def _names(cells: tuple[Cell, ...]) -> list[str]:
    return ["/".join(map(str, cells[:k])) for k in range(1, len(cells))]


def parse(name: str, markdown: str) -> Table:
    """The table that `Table.markdown` wrote, its cells as text. Raises ValueError where it is no such table."""
    lines = markdown.splitlines()
    body = [line for line in lines if line.startswith("| ")]
    if not lines[0].startswith("**") or not body:
        raise ValueError(f"table {name}: not the Markdown of a table")
    rows = [tuple(part.replace(r"\|", "|") for part in re.split(r"(?<!\\) \| ", line[2:-2])) for line in body]
    notes = [line for line in lines[1:] if line and not line.startswith("|")]
    return Table(name, lines[0].strip("*"), rows[0], list(rows[1:]), notes=notes)


def _parts(name: str) -> list[str]:
    return [f"{name} low", f"{name} high", f"{name} of"]


def _spread(cell: Cell) -> list[str]:
    if not isinstance(cell, Measure):
        return [cell, "", "", ""]
    show = f"{{:.{cell.digits}f}}".format
    ends = ["", ""] if cell.low is None else [show(cell.low), show(cell.high)]
    return [show(cell.value), *ends, cell.of]
