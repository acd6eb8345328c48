"""vllm_engine.py against a stand-in for vllm: what is asked of it, what is taken from it, when it gets weights."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from policy import add_lora
from rollout import rollout, stream
from settings import parse
from vllm_engine import Vllm


@pytest.fixture
def vllm(monkeypatch, policy):
    """A module `vllm` whose LLM answers every prompt with two words and the end token, and keeps what it was told."""
    made = ModuleType("vllm")
    made.__spec__ = ModuleSpec("vllm", None)
    told = SimpleNamespace(options=None, weights=[], resets=0, calls=[])
    end = policy.tokenizer.eos_token_id
    ids = [*policy.encode_raw("say red"), end]

    class LLM:
        def __init__(self, **options):
            told.options = options

        def apply_model(self, function):
            function(SimpleNamespace(load_weights=told.weights.append))

        def reset_prefix_cache(self):
            told.resets += 1

        def generate(self, prompts, params, use_tqdm, lora_request):
            told.calls.append((prompts, params, lora_request))
            logprobs = [{token: SimpleNamespace(logprob=-0.5 - k)} for k, token in enumerate(ids)]
            return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, logprobs=logprobs)]) for _ in prompts]

    made.LLM, made.SamplingParams = LLM, lambda **values: SimpleNamespace(**values)
    lora, request = ModuleType("vllm.lora"), ModuleType("vllm.lora.request")
    request.LoRARequest = lambda name, number, path: (name, number, path)
    for name, module in (("vllm", made), ("vllm.lora", lora), ("vllm.lora.request", request)):
        monkeypatch.setitem(sys.modules, name, module)
    return told


def test_without_vllm_the_flag_says_what_to_install():
    with pytest.raises(ValueError, match=r"--engine vllm: the package is missing.*requirements-vllm.txt"):
        parse(["--engine", "vllm"])


def test_ids_go_in_and_ids_and_log_probs_come_out(vllm, policy):
    engine = Vllm(policy, memory=0.4)
    draws = np.random.default_rng(0).random((2, 5))
    out = engine(policy, [[5, 6], [7]], draws, 0.7)
    ids = [*policy.encode_raw("say red"), policy.tokenizer.eos_token_id]
    assert out == [(ids, [-0.5, -1.5, -2.5])] * 2
    prompts, params, adapter = vllm.calls[0]
    assert prompts == [{"prompt_token_ids": [5, 6]}, {"prompt_token_ids": [7]}] and adapter is None
    assert vllm.options["logprobs_mode"] == "processed_logprobs" and vllm.options["generation_config"] == "vllm"
    assert vllm.options["gpu_memory_utilization"] == 0.4 and vllm.options["dtype"] == "float32"
    one = params[0]
    assert (one.temperature, one.top_p, one.top_k, one.min_p, one.max_tokens) == (0.7, 1.0, 0, 0.0, 5)
    assert one.stop_token_ids == policy.end_ids and one.logprobs == 0
    assert params[0].seed != params[1].seed == int(draws[1, 0] * 2**31)
    with pytest.raises(ValueError, match=r"a prompt of 1020 tokens .* exceed vLLM's 1024"):
        engine(policy, [[5] * 1020], draws[:1], 1.0)


def test_every_update_hands_over_the_weights(vllm, policy):
    engine = Vllm(policy, memory=0.3)
    assert len(vllm.weights) == vllm.resets == 1
    with torch.no_grad():
        policy.model.model.norm.weight.fill_(3.0)
    engine.follow(policy)
    assert vllm.resets == 2 and (dict(vllm.weights[1])["model.norm.weight"] == 3).all()


def test_an_adapter_is_handed_over_under_a_new_number(vllm, policy):
    add_lora(policy, 12)
    engine = Vllm(policy, memory=0.3)
    assert vllm.options["enable_lora"] and vllm.options["max_lora_rank"] == 16 and not vllm.weights
    draws = np.zeros((1, 4))
    engine(policy, [[5]], draws, 1.0)
    engine.follow(policy)
    engine(policy, [[5]], draws, 1.0)
    (name, number, path), (new_name, new_number, _) = (call[2] for call in vllm.calls)
    assert (name, number, new_name, new_number) == ("step-1", 1, "step-2", 2)
    assert (Path(path) / "adapter_model.safetensors").is_file()


def test_rollouts_and_training_use_the_engine(vllm, policy, domain, launch):
    policy.engine = Vllm(policy, memory=0.3)
    starts = [(g, task, stream(0, 1, task, g)) for g, task in enumerate(domain.tasks("train")[:3])]
    played = rollout(policy, domain, starts, 1.0, 5)
    assert [game.steps[0].response for game in played] == ["say red"] * 3 and played[0].won
    before = len(vllm.weights)
    log = (launch("--steps", "2", "--engine", "vllm", "--vllm_memory", "0.2") / "log.jsonl").read_text()
    assert '"sampler/logp_diff"' in log and vllm.options["gpu_memory_utilization"] == 0.2
    assert len(vllm.weights) - before == 3  # at the start and after each update
