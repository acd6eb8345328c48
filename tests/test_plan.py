"""plan.py: sizes by hand, what autograd really keeps, what the logs say, and that nothing is loaded."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import envs
import plan
from plan import (
    GIB,
    SHAPES,
    Lengths,
    kept_by_token,
    lengths,
    memory,
    peak,
    report,
    scripted_prompts,
    shape_of,
    without_weights,
)
from policy import Policy, Rows, add_lora, token_logp
from settings import Settings, resolve
from tests.toy import Toy
from train import train

SMALL = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 500, "tie_word_embeddings": True}  # fmt: skip
SEEN = Lengths(mean=300.0, longest=500, how="made up")


def settings(**changes) -> Settings:
    return resolve(Settings(**({"dtype": "float32", "lora": 0} | changes)), small=False, cuda=True, domain=Toy())


def shadow(dtype=torch.float32, lora: int = 0, **shape) -> torch.nn.Module:
    return without_weights(LlamaConfig(**SMALL | shape), dtype, lora).model


def test_the_papers_models_have_their_published_sizes():
    for name, whole, adapter in (
        ("Qwen/Qwen2.5-3B-Instruct", 3_085_938_688, 59_867_136),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, 80_740_352),
        ("Qwen/Qwen3-1.7B", 1_720_574_976, 34_865_152),
    ):
        config, said = shape_of(name)
        model = without_weights(config, torch.bfloat16, 32).model
        assert model.num_parameters(only_trainable=True) == adapter and "published" in said
        assert model.num_parameters() - adapter == whole
        assert all(parameter.is_meta for parameter in model.parameters())
    assert len(SHAPES) == 3


def test_an_adapter_by_hand():
    by_layer = 4 * (64 + 64) + 4 * (64 + 32) * 2 + 4 * (64 + 64) + 4 * (64 + 192) * 3
    assert shadow(lora=4).num_parameters(only_trainable=True) == 3 * by_layer


def test_memory_by_hand():
    """3B in full, float32: five times four bytes a weight are always there or made by the first update."""
    model = without_weights(shape_of("Qwen/Qwen2.5-3B-Instruct")[0], torch.float32, 0).model
    whole = 3_085_938_688
    parts = memory(settings(groups=16, max_response=100, eval_tasks=128, micro_tokens=4000), model, SEEN)
    assert (parts["weights"], parts["copies"], parts["gradients"], parts["optimizer"]) == (
        4 * whole, 4 * whole, 4 * whole, 8 * whole)  # fmt: skip
    assert parts["cache"] == 128 * 600 * 36 * 2 * 2 * 128 * 4
    assert parts["prefill"] == 128 * 500 * 3 * 11008 * 4
    assert parts["logits"] == 10 * 100 * 151936 * 20  # 4000 // (300 + 100) rows
    assert 20 * whole / GIB == pytest.approx(57.5, abs=0.05)  # as reproduce.sh says
    update = parts["gradients"] + parts["activations"] + parts["logits"]
    assert peak(parts) == 16 * whole + max(update, parts["cache"] + parts["prefill"])


def test_what_makes_a_run_smaller():
    model = shadow()
    base = memory(settings(groups=64), model, SEEN)
    assert memory(settings(groups=64), model, SEEN, processes=2)["cache"] == base["cache"] / 2
    saving = memory(settings(groups=64, gradient_checkpointing=True), model, SEEN)
    assert saving["activations"] < base["activations"] / 2 and saving["logits"] == base["logits"]
    assert memory(settings(groups=64, kl=0.0), model, SEEN)["copies"] == 0
    assert memory(settings(groups=64, teacher="frozen"), model, SEEN)["copies"] == 2 * base["copies"]
    assert memory(settings(groups=64, method="none", teacher="frozen"), model, SEEN)["copies"] == base["copies"]
    assert memory(settings(lora=4), shadow(lora=4), SEEN)["copies"] == 0
    assert memory(settings(groups=1, eval_tasks=0), model, SEEN)["cache"] == base["cache"] / 2  # 256 of the panel
    untrained = memory(settings(method="vanilla", groups=64), model, SEEN)
    assert set(untrained) == {"weights", "copies", "cache", "prefill"} and untrained["weights"] == base["weights"]
    half = memory(settings(groups=64, dtype="bfloat16"), shadow(torch.bfloat16), SEEN)
    assert half["cache"] == base["cache"] / 2 and half["logits"] == base["logits"]


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activations_are_what_autograd_keeps(lora, dtype):
    """A real model on the CPU, real rows, its own attention kernel: within 15 % of the plan."""
    torch.manual_seed(0)
    config = LlamaConfig(**SMALL)
    policy = Policy(AutoModelForCausalLM.from_config(config, dtype=dtype), None, lean=True)
    if lora:
        add_lora(policy, lora)
    own = {parameter.untyped_storage().data_ptr() for parameter in policy.model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    count, prompt = 4, 24
    rows = Rows(torch.zeros(count, prompt, dtype=torch.long), torch.full((count,), prompt),
                torch.zeros(count, 1, dtype=torch.long), torch.ones(count, dtype=torch.long))  # fmt: skip
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        alive = token_logp(policy.model, rows, 1.0)
    measured = sum(storage.nbytes() for storage in kept.values()) - 2 * 4 * count * config.vocab_size
    assert alive[0].requires_grad
    planned = count * (prompt + 1) * kept_by_token(shadow(dtype, lora), checkpointing=False)
    assert planned == pytest.approx(measured, rel=0.15)


def test_what_is_kept_grows_by_the_same_for_every_token():
    for lora in (0, 4):
        model = shadow(lora=lora, hidden_size=512, intermediate_size=1024)
        more = (plan.kept(model, 13) - plan.kept(model, 1)) / 12
        assert kept_by_token(model, checkpointing=False) == pytest.approx(more, rel=0.02)
        inputs = 3 * 512 * 4
        assert kept_by_token(model, checkpointing=True) == pytest.approx(inputs + more / 3, rel=0.02)


def test_logits_take_what_the_profiler_sees():
    """The peak of a forward and a backward pass whose only large tensors have the vocabulary's size."""
    from torch.profiler import ProfilerActivity, profile

    model = AutoModelForCausalLM.from_config(LlamaConfig(**SMALL | {"vocab_size": 30000, "num_hidden_layers": 1}))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    count, width = 8, 16
    rows = Rows(torch.zeros(count, 4, dtype=torch.long), torch.full((count,), 4),
                torch.zeros(count, width, dtype=torch.long), torch.full((count,), width))  # fmt: skip
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        logp, entropy = token_logp(model, rows, 1.0)
        (logp.sum() + entropy.sum()).backward()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    assert most / (count * width * 30000) == pytest.approx(plan.LOGIT_BYTES, rel=0.1)


def test_prompts_are_those_of_the_environment():
    texts = list(scripted_prompts(Toy(max_turns=3), lean=True, tasks=4))
    assert 8 <= len(texts) <= 4 + 4 * 3 and texts[0].startswith("task say red")
    seen = lengths(Toy(), "no/such-model", lean=True)
    assert seen.longest == max(round(len(text) / plan.CHARACTERS) for text in scripted_prompts(Toy(), lean=True))
    assert "characters a token" in seen.how


def test_a_dry_run_loads_and_writes_nothing(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    train(Settings(dry_run=True, model="Qwen/Qwen3-1.7B", results=str(tmp_path / "results"), max_turns=2))
    said = capsys.readouterr().out
    assert "1,755,440,128 parameters (its published shape, nothing was fetched), 34,865,152 of them" in said
    assert "128 episodes, at most 256 rows" in said and "of 2 process(es)" in said
    assert "(32 turns of scripted play" in said  # 8 tasks, two players, two turns
    assert "\nlr                       1e-06\n" in said and "\neta                      0.02\n" in said
    assert not (tmp_path / "results").exists()


def test_the_small_policy_is_planned_from_its_folder():
    said = report(Settings(model="tiny", steps=1))
    assert "672,896 parameters (from its folder)" in said and "the model's tokenizer" in said
    assert "64 episodes, at most 640 rows" in said


def test_a_model_that_is_not_there_is_an_error():
    with pytest.raises(OSError, match="--model no/such-model: no folder"):
        report(Settings(model="no/such-model"))


def test_prompts_on_real_data_beside_the_authors_logs(shared):
    """The mean prompt of their first step; in WebShop their untrained policy dwells on longer pages."""
    for env, at_least, at_most in (("alfworld", 0.9, 1.1), ("webshop", 0.5, 0.8)):
        log = (shared / "paper" / "logs" / "table2" / f"3b_{env}.jsonl").read_text().splitlines()
        theirs = next(row for row in map(json.loads, log) if row["step"] == 1)["prompt_length/mean"]
        ours = lengths(envs.load(env, data=str(shared / env)), "no/such-model", lean=False).mean
        assert at_least <= ours / theirs <= at_most, env
