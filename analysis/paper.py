"""What the paper prints: the numbers that stand beside ours, and the reader of its Table 2.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

All are success in percent of one run, at step 150 unless said. Source: Table 2 and the result figures of
arXiv:2608.03223, as method.md 1.7, 1.8 and 5 give them. Left out: what the authors' logs say (audit.py).
"""

import csv
from pathlib import Path

from analysis.groups import Group

# Qwen2.5-3B-Instruct: ALFWorld average, average over the QA sets, WebShop success. A test compares with table2.csv.
TABLE2 = {
    "Vanilla": (21.9, 31.7, 0.8), "Skill-Prompt*": (28.9, 23.9, 0.8), "OPSD": (28.1, 0.0, 3.1),
    "GRPO": (75.0, 36.4, 63.3), "Skill-GRPO": (60.2, 34.1, 60.9), "Skill-GRPO*": (80.5, 36.1, 66.4),
    "GRPO+OPSD": (81.2, 44.6, 66.4), "Skill-SD": (73.4, 44.1, 64.0), "RLSD": (79.7, 43.8, 66.4),
    "SDAR": (84.4, 43.4, 68.0), "ADRS+TVA": (94.5, 45.0, 76.6),
}  # fmt: skip
ENVS = ("alfworld", "search", "webshop")
MODELS = {  # ALFWorld average by model
    "GRPO": {"Qwen2.5-3B-Instruct": 75.0, "Qwen2.5-7B-Instruct": 81.2, "Qwen3-1.7B": 46.1},
    "SDAR": {"Qwen2.5-3B-Instruct": 84.4, "Qwen2.5-7B-Instruct": 85.9, "Qwen3-1.7B": 53.9},
    "ADRS+TVA": {"Qwen2.5-3B-Instruct": 94.5, "Qwen2.5-7B-Instruct": 96.1, "Qwen3-1.7B": 62.5},
}
ON_GIGPO = {"GiGPO": 82.8, "GiGPO+ADRS": 87.5, "GiGPO+ADRS+TVA": 89.8}
DATA = {
    "GRPO": {0.2: 27.3, 0.4: 42.2, 0.6: 56.3, 0.8: 58.6, 1.0: 75.0},
    "ADRS+TVA": {0.2: 57.8, 0.4: 62.5, 0.6: 78.1, 0.8: 80.5, 1.0: 94.5},
}
HORIZON = {"SDAR": {25: 78.9, 35: 75.0, 50: 84.4}, "ADRS+TVA": {25: 85.2, 35: 85.2, 50: 94.5}}
UNSEEN = {  # validation on unseen games; ADRS is a best checkpoint
    "ADRS+TVA": {"alf_avg": 82.8, "alf_pick": 78.9, "alf_look": 55.6, "alf_clean": 90.3, "alf_heat": 72.2,
                 "alf_cool": 95.5, "alf_pick2": 95.0},
    "GRPO": {"alf_avg": 70.9, "alf_pick": 73.9, "alf_look": 60.0, "alf_clean": 82.4, "alf_heat": 59.3,
             "alf_cool": 72.7, "alf_pick2": 76.9},
}  # fmt: skip
LONG = {"GRPO": 86.7, "ADRS+TVA": 96.1}  # final of 300 steps
# step: mean gap of action, object and style tokens, nats; 32 action and object tokens of four episodes
GAPS = {
    0: (-0.251, 0.309, 0.155), 50: (-0.516, 0.415, 0.104), 100: (-0.556, 0.235, 0.054), 150: (-0.858, 0.459, 0.009),
    200: (-0.967, 0.352, 0.037), 250: (-0.909, 0.447, 0.023), 300: (-1.311, -0.366, 0.511),
}  # fmt: skip

TYPES = {  # Table 2's columns, as logs name the types
    "alf_pick": "pick_and_place",
    "alf_look": "look_at_obj_in_light",
    "alf_clean": "pick_clean_then_place_in_recep",
    "alf_heat": "pick_heat_then_place_in_recep",
    "alf_cool": "pick_cool_then_place_in_recep",
    "alf_pick2": "pick_two_obj_and_place",
}
SETS = {  # Table 2's columns, as logs name the question sets, and the questions of each full test set
    "nq": ("nq", 3610),
    "triviaqa": ("triviaqa", 11313),
    "popqa": ("popqa", 14267),
    "hotpotqa": ("hotpotqa", 7405),
    "2wiki": ("2wikimultihopqa", 12576),
    "musique": ("musique", 2417),
    "bamboogle": ("bamboogle", 125),
}


def name(label: str) -> str:
    """The paper's name of a method of ours: its ADRS has the gate."""
    return "ADRS" if label == "ADRS+TVA" else label


def published(table: str, group: Group) -> float | None:
    """The paper's final success for the same cell of one of our experiments, or None where it prints none."""
    if table == "main" or table == "baselines":
        row = TABLE2.get(group.label)
        if row and group.env in ENVS:
            return row[ENVS.index(group.env)]
    if group.env != "alfworld":
        return None
    if table == "data":
        return DATA.get(group.label, {}).get(group.settings.get("fraction"))
    if table == "unseen" and group.settings.get("eval_split") == "unseen":
        return UNSEEN.get(group.label, {}).get("alf_avg")
    if table == "long":
        return LONG.get(group.label)
    return ON_GIGPO.get(group.label) if table in ("main", "baselines", "tva") else None


def others(table: str) -> list[tuple[str, str, float]]:
    """What the paper prints for an experiment in worlds that ours has not: (label, world, success on ALFWorld)."""
    if table == "models":
        return [(label, model, value) for label, row in MODELS.items() for model, value in row.items()]
    if table == "horizon":
        return [(label, f"{turns} turns", value) for label, row in HORIZON.items() for turns, value in row.items()]
    return []


def read_table2(path: Path) -> dict[tuple[str, str], dict[str, float]]:
    """Table 2 by (model, method): a number for each column. Raises ValueError naming the line of a bad one."""
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        columns = {"model", "method", "alf_avg", "qa_avg", "webshop_score", "webshop_success", *TYPES, *SETS}
        missing = sorted(columns - set(reader.fieldnames or ()))
        if missing:
            raise ValueError(f"{path}: not Table 2, it has no column {', '.join(missing)}")
        rows = {}
        for number, line in enumerate(reader, 2):
            try:
                cells = {key: float(value) for key, value in line.items() if key not in ("model", "method")}
            except (TypeError, ValueError):
                raise ValueError(f"{path}, line {number}: a number is missing in '{line['method']}'") from None
            rows[line["model"], line["method"]] = cells
    return rows
