"""From a README to the numbers in it that no log backs.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

Three marks, which Markdown does not show:

    <!-- analyze:TABLE -->            a whole table, as results/tables/TABLE.md holds it
    <!-- /analyze -->
    <!-- num:TABLE:ROW:COLUMN -->94.5<!-- /num -->       the value of one cell; ROW: its index columns joined by '/'
    <!-- cell:TABLE:ROW:COLUMN -->94.5 [89.1, 97.3] (121/128, 1 run)<!-- /cell -->      the whole cell
    <!-- cite:SOURCE -->60.2<!-- /cite -->                a number of someone else, with where it is from

Any other decimal number from 1 on, and any percentage or number of points, is an error, unless it stands in code, a
formula, an address, or a name (Qwen2.5, arXiv 2608.03223). Put a version or a setting in code: `3.11`, `13 %`. Left
out: whether what is said about a number is true.
"""

import re

from analysis.render import Table

BLOCK = re.compile(r"(<!-- analyze:([\w.-]+) -->\n)(.*?)(<!-- /analyze -->)", re.DOTALL)
INLINE = re.compile(r"(<!-- (num|cell):([\w.-]+):([^\n]+?):([^:\n]+?) -->)([^<\n]*)(<!-- /\2 -->)")
CITED = re.compile(r"<!-- cite:[^>\n]*\S[^>\n]* -->[^<\n]*<!-- /cite -->")
MARK = re.compile(r"<!-- /?(?:analyze|num|cell|cite)\b[^>]*-->")
# what may hold numbers of its own: code, formulas, other comments, addresses
QUOTED = re.compile(
    r"```.*?```|~~~.*?~~~|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]+\$|<!--.*?-->|\]\([^)\n]*\)|https?://\S+", re.DOTALL
)
NUMBER = re.compile(r"(?<![\w.,/:-])[-+−]?(?:[1-9]\d{0,2}\.\d+(?![\w.-])|\d+(?:\.\d+)? ?(?:%|points))")


def _value(table: Table, row: str, column: str, whole: bool) -> str:
    """A cell, or the number that it begins with."""
    cell = str(table.cell(row, column))
    number = re.match(r"[-+−<]?\d+(?:\.\d+)?", cell)
    return number[0] if number and not whole else cell


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def fill(text: str, tables: dict[str, Table]) -> str:
    """The README with every marked table and number replaced by today's. Raises ValueError for a mark that names a
    table, row or column that is not there."""

    def block(match: re.Match) -> str:
        return match[1] + _table(tables, match[2], _line(text, match.start())).markdown + match[4]

    def inline(match: re.Match) -> str:
        where = _line(text, match.start())
        try:
            value = _value(_table(tables, match[3], where), match[4], match[5], match[2] == "cell")
        except ValueError as error:
            raise ValueError(f"line {where}: {error}") from None
        return match[1] + value + match[7]

    return INLINE.sub(inline, BLOCK.sub(block, text))


def _table(tables: dict[str, Table], name: str, line: int) -> Table:
    if name not in tables:
        raise ValueError(f"line {line}: there is no table '{name}'; there are {', '.join(sorted(tables)) or 'none'}")
    return tables[name]


def _blank(pattern: re.Pattern, text: str) -> str:
    """The text with what matches blanked out, so that the rest keeps its lines."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def complaints(text: str, tables: dict[str, Table]) -> list[str]:
    """What is wrong with a README, by line: a table or number that the logs do not give, a mark that is not closed,
    a number without a mark."""
    found = []
    for pattern, name in ((BLOCK, 2), (INLINE, 3)):
        for match in pattern.finditer(text):
            try:
                now = fill(match[0], tables)
            except ValueError as error:
                found.append((_line(text, match.start()), re.sub(r"^line 1: ", "", str(error))))
                continue
            if now != match[0]:
                said = (
                    f"table '{match[name]}' is not what the logs give"
                    if pattern is BLOCK
                    else (f"says {match[6]}, the logs give {INLINE.match(now)[6]} ({match[3]}, {match[4]}, {match[5]})")
                )
                found.append((_line(text, match.start()), f"{said}; --write mends it"))
    rest = text
    for pattern in (BLOCK, INLINE, CITED):
        rest = _blank(pattern, rest)
    for match in MARK.finditer(rest):
        found.append((_line(text, match.start()), f"{match[0]} has no partner, or is not of a known form"))
    for match in NUMBER.finditer(_blank(QUOTED, rest)):
        found.append(
            (_line(text, match.start()), f"{match[0].strip()} has no mark that ties it to a log (num, cell, cite)")
        )
    return [f"line {line}: {said}" for line, said in sorted(found)]
