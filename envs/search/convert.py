"""From the files of Search-R1 and FlashRAG to this project's questions.jsonl.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

    python -m envs.search.convert nq_hotpotqa_train/train.parquet questions.jsonl --split train
    python -m envs.search.convert nq_hotpotqa_train/test.parquet  questions.jsonl --split test --append
    python -m envs.search.convert musique/dev.jsonl questions.jsonl --split dev --source musique --append

A parquet row has `data_source`, golds in reward_model.ground_truth.target, and the question in a column or behind
"Question: " in its prompt; its index starts anew in every source, so the id holds source, split and index
(searchqa.md 1.1, 3.3). A FlashRAG line has `id`, `question`, `golden_answers`. Left out: the prompt, which prompts.py
writes; corpora, which are read as they come. Needs pyarrow for parquet (requirements-search.txt).
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from envs.search.passages import json_lines
from envs.search.questions import question_from

ROWS = 4096  # of a parquet file in memory at a time


def parquet_rows(file: Path) -> Iterator[tuple[str, dict]]:
    """(where, row) of a parquet file. Raises FileNotFoundError; ValueError where it is none, or pyarrow is missing."""
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ValueError(f"{file}: parquet needs pyarrow (pip install -r requirements-search.txt)") from error
    try:
        number = 0
        for batch in ParquetFile(file).iter_batches(ROWS):
            for row in batch.to_pylist():
                number += 1
                yield f"{file}, row {number}", row
    except (ArrowException, OSError) as error:
        raise ValueError(f"{file}: not a parquet file that can be read ({error})") from error


def from_search_r1(row: dict, where: str, split: str) -> dict:
    """A record of questions.jsonl from a row of Search-R1's parquet. Raises ValueError that begins with `where`."""
    try:
        golds = row["reward_model"]["ground_truth"]["target"]
        index = row["extra_info"]["index"]
        text = row.get("question") or row["prompt"][0]["content"].split("Question: ", 1)[1]
        source = row["data_source"]
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{where}: not a row of Search-R1's question files ({error!r} is missing)") from error
    golds = golds if isinstance(golds, str) else list(golds or [])
    return {"id": f"{split}-{index}", "question": text, "golden_answers": golds, "source": source, "split": split}


def from_flashrag(record: dict, source: str, split: str) -> dict:
    """A record of questions.jsonl from a line of FlashRAG's; `source` where the line names none."""
    kept = {key: record[key] for key in ("id", "question", "golden_answers") if key in record}
    return kept | {"source": record.get("source", source), "split": split}


def records(file: Path, source: str, split: str) -> Iterator[dict]:
    """The records of one file of either kind, checked. Raises FileNotFoundError, and ValueError naming file and row."""
    if file.suffix == ".parquet":
        rows = ((where, from_search_r1(row, where, split)) for where, row in parquet_rows(file))
    else:
        lines = ((f"{file}, line {number}", record) for number, _, record in json_lines(file))
        rows = ((where, from_flashrag(record, source, split)) for where, record in lines)
    for where, record in rows:
        question_from(record, where)
        yield record


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes questions.jsonl.", allow_abbrev=False)
    parser.add_argument("file", type=Path, help="Search-R1's parquet, or FlashRAG's JSON lines")
    parser.add_argument("out", type=Path, help="questions.jsonl")
    parser.add_argument("--split", required=True, choices=("train", "val", "dev", "test"))
    parser.add_argument("--source", default="", help="data set of a FlashRAG file: nq, hotpotqa, ...")
    parser.add_argument("--append", action="store_true", help="add to an existing file")
    args = parser.parse_args()
    try:
        found = list(tqdm(records(args.file, args.source, args.split), desc=args.file.name, unit=" questions"))
        with args.out.open("a" if args.append else "x", encoding="utf-8") as out:
            out.write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in found))
    except FileExistsError:
        parser.exit(1, f"convert: {args.out} exists: give --append, or another name\n")
    except (OSError, ValueError) as error:
        parser.exit(1, f"convert: {error}\n")
    print(f"{len(found)} questions to {args.out}")


if __name__ == "__main__":
    main()
