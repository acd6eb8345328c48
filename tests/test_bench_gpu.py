"""bench/gpu.py at toy size on the CPU: the whole step runs, and its arithmetic is right."""

import re

import pytest
import torch

from bench.gpu import MODEL, Phase, arithmetic, main, peak_flops, stand_in, table
from plan import CHARACTERS, SHAPES, shape_of, without_weights
from tests.conftest import ROOT


def test_a_toy_step_runs_to_its_table(capsys):
    main(["--toy"])
    head, said, *lines = capsys.readouterr().out.splitlines()
    assert "CPU" in head and "4 episodes of 2 turns" in said
    rows = [line.strip("|").split(" | ") for line in lines[2:]]
    assert [row[0].strip() for row in rows] == ["rollout", "old", "ref", "teacher", "update"]
    assert all(float(row[2].replace(",", "")) > 0 and row[3] == "unknown" for row in rows)
    assert re.search(r"64 response tokens", said)  # 4 episodes x 2 turns x 8: no response ends early


def test_without_cuda_it_says_what_to_do(capsys):
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    with pytest.raises(SystemExit):
        main([])
    assert "--toy" in capsys.readouterr().err


def test_arithmetic_by_hand():
    model = without_weights(shape_of(MODEL)[0], torch.bfloat16, 4).model
    head = 151936 * 2048
    body = 3_085_938_688 - head
    phase = Phase(seconds=2.0, prompt=10, response=3, memory=0.0)
    forward = 2 * body * 13 + 2 * head * 3
    assert arithmetic(model, "rollout", phase) == arithmetic(model, "teacher", phase) == forward
    assert arithmetic(model, "update", phase) == 2 * forward
    untied = "Qwen/Qwen2.5-7B-Instruct"
    head, whole = 152064 * 3584, 7_615_616_512
    seven = without_weights(shape_of(untied)[0], torch.bfloat16, 4).model
    assert arithmetic(seven, "old", phase) == 2 * (whole - 2 * head) * 13 + 2 * head * 3


def test_the_table_by_hand():
    model = without_weights(shape_of(MODEL)[0], torch.bfloat16, 4).model
    phase = Phase(seconds=2.0, prompt=30, response=10, memory=3 * 2**30)
    top = arithmetic(model, "old", phase)  # a GPU that needs one second at its peak for what took two
    lines = table({"rollout": phase, "old": phase}, model, top).splitlines()
    assert lines[2] == "| rollout | 2.0 | 5 | 50.0 % | 3.0 |" and lines[3] == "| old | 2.0 | 20 | 50.0 % | 3.0 |"
    assert lines[0] in (ROOT / "bench" / "README.md").read_text()


def test_gpus_are_told_apart():
    names = {"NVIDIA H200": 989e12, "NVIDIA H20": 148e12, "NVIDIA H100 80GB HBM3": 989e12, "NVIDIA H100 PCIe": 756e12,
             "NVIDIA A100-SXM4-80GB": 312e12, "Tesla T4": None}  # fmt: skip
    assert {name: peak_flops(name) for name in names} == names


def test_the_stand_in_tokenizer_loses_nothing_and_is_about_as_fine_as_qwens():
    texts = ["You are in the middle of a room. You see a desk 1, a fridge 1 and a cabinet 2." * 3] * 4
    tokenizer = stand_in(texts)
    ids = tokenizer(texts[0] + " né\n", add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == texts[0] + " né\n"
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False, add_generation_prompt=True)
    assert chat == "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.slow
def test_the_stand_in_on_the_environments_prompts():
    import envs
    from plan import scripted_prompts

    texts = list(scripted_prompts(envs.load("alfworld"), lean=False))
    tokens = sum(len(stand_in(texts)(text)["input_ids"]) for text in texts[:20])
    assert sum(map(len, texts[:20])) / tokens == pytest.approx(CHARACTERS, rel=0.1) and MODEL in SHAPES
