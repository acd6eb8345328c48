"""What a run will need, before it starts: rows and tokens a step, and memory, from settings and the model's shape.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
                                                    [plan] serves ^^^^^

    python train.py --dry_run --model Qwen/Qwen2.5-3B-Instruct

No weights are loaded: the model is built on torch's meta device, where tensors have shapes and no storage, and the
update's own forward pass is made there to add up what autograd keeps. Prompts are those of scripted players in the
environment at hand: on real ALFWorld games as long as in the authors' logs, in WebShop 0.6 of it (a test compares).
Left out: time (bench/gpu.py measures it), and what CUDA and its allocator take for themselves.
"""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig

import envs
from envs.base import Domain
from policy import Policy, Rows, add_lora, choose_model, token_logp
from rollout import Episode, step_all, stream
from settings import NEEDS_TEACHER, Settings, resolve

# The paper's models, as their config.json on the hub has them: these need no hub.
SHAPES = {
    "Qwen/Qwen2.5-3B-Instruct": {
        "model_type": "qwen2", "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
        "max_position_embeddings": 32768, "eos_token_id": 151645, "bos_token_id": 151643,
    },
    "Qwen/Qwen2.5-7B-Instruct": {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
        "max_position_embeddings": 32768, "eos_token_id": 151645, "bos_token_id": 151643,
    },
    "Qwen/Qwen3-1.7B": {
        "model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
        "tie_word_embeddings": True, "max_position_embeddings": 40960, "eos_token_id": 151645, "bos_token_id": 151643,
    },
}  # fmt: skip
CHARACTERS = 3.2  # a token of Qwen3's tokenizer in prompts of ALFWorld (3.35) and WebShop (3.15); search has 4.1
LOGIT_BYTES = 20  # peak of `token_logp` and its backward pass, for a response token and a word of the vocabulary
GIB = 2**30


def _gguf(name: str) -> dict[str, str]:
    """What from_pretrained must be told of a folder whose model is one GGUF file."""
    files = sorted(Path(name).glob("*.gguf"))
    return {"gguf_file": files[0].name} if files else {}


def shape_of(name: str) -> tuple[PretrainedConfig, str]:
    """The config of a model and, in words, where it was found. Raises OSError where neither a folder nor the hub has
    one."""
    if name in SHAPES:
        return AutoConfig.for_model(**SHAPES[name]), "its published shape, nothing was fetched"
    try:
        config = AutoConfig.from_pretrained(name, **_gguf(name))
    except (OSError, ValueError) as error:
        known = ", ".join(SHAPES)
        raise OSError(f"--model {name}: no folder with a config.json, nor on the hub (known here: {known})") from error
    return config, "from its folder" if Path(name).is_dir() else "from the hub or its cache"


def without_weights(config: PretrainedConfig, dtype: torch.dtype, lora: int) -> Policy:
    """A policy of this shape on the meta device, without a tokenizer; `lora`: rank of its adapter, 0 for none."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager")
    policy = Policy(model.eval(), None, getattr(config, "lean_prompts", False))
    if lora:
        add_lora(policy, lora)
    return policy


def kept(model: torch.nn.Module, prompt: int) -> int:
    """Bytes that autograd keeps of one row of `prompt` tokens and a response of one token, parameters aside."""
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    found = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            found[storage._cdata] = storage
        return tensor

    ids, one = torch.zeros(1, prompt, dtype=torch.long, device="meta"), torch.ones(1, dtype=torch.long, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        alive = token_logp(model, Rows(ids, one * prompt, ids[:, :1], one), 1.0)
    total = sum(storage.nbytes() for storage in found.values())
    del alive
    return total


def kept_by_token(model: torch.nn.Module, checkpointing: bool) -> float:
    """Bytes that the update keeps of one token, logits aside: from two short rows, in which attention's square is
    small. With gradient checkpointing: the input of every layer, and one layer at a time in full."""
    by_token, layers = (kept(model, 7) - kept(model, 1)) / 6, model.config.num_hidden_layers
    inputs = layers * model.config.hidden_size * next(model.parameters()).element_size()
    return inputs + by_token / layers if checkpointing else by_token


@dataclass(frozen=True)
class Lengths:
    """Tokens of the prompts of some scripted episodes, and how they were counted."""

    mean: float
    longest: int
    how: str


def scripted_prompts(domain: Domain, lean: bool, tasks: int = 8) -> Iterator[str]:
    """The prompts of every turn of the expert and of random play, on tasks from all over the training split."""
    everything = domain.tasks("train")
    for kind in ("expert", "random"):
        for task in everything[:: max(1, len(everything) // tasks)][:tasks]:
            episode, player = Episode(domain, task), domain.player(kind, stream(0, 0, task, 0))
            while not episode.over:
                view = episode.view()
                yield domain.prompt(view, lean)
                step_all(domain, [episode], [player(view, episode.env)])


def lengths(domain: Domain, name: str, lean: bool) -> Lengths:
    """Counts the prompts with the model's tokenizer where it is on this machine, else by their characters."""
    texts = list(scripted_prompts(domain, lean))
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=True, **_gguf(name))
        counts, how = [len(tokenizer(text)["input_ids"]) for text in texts], "the model's tokenizer"
    except (OSError, ValueError):
        counts = [round(len(text) / CHARACTERS) for text in texts]
        how = f"{CHARACTERS} characters a token, its tokenizer is not on this machine"
    return Lengths(sum(counts) / len(counts), max(counts), f"{len(texts)} turns of scripted play, {how}")


def memory(s: Settings, model: torch.nn.Module, seen: Lengths, processes: int = 1) -> dict[str, float]:
    """Bytes of one process by purpose. Weights, copies, gradients and optimizer are whole in every process (plain
    data parallelism); activations and logits are those of one micro-batch of full responses; the cache is that of
    the episodes that play at once, training's or an evaluation's, each at its longest."""
    config, item = model.config, next(model.parameters()).element_size()
    weights = sum(parameter.nbytes for parameter in model.parameters())
    trained = sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
    copies = (s.kl > 0 and not s.lora) + (s.method in NEEDS_TEACHER and s.teacher != "live")
    full = seen.mean + s.max_response
    rows = max(1, int(s.micro_tokens / full))
    playing = max(-(-s.groups // processes) * s.group_size, min(256, s.eval_tasks or 256))
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    parts = {
        "weights": weights,
        "copies": copies * weights,  # the reference policy, and a teacher that is not the live one
        "cache": playing * (seen.longest + s.max_response) * config.num_hidden_layers * 2 * heads * width * item,
        "prefill": playing * seen.longest * 3 * config.intermediate_size * item,  # gate, up and their product
    }
    if s.steps == 0:
        return parts
    return parts | {
        "gradients": trained,
        "optimizer": 2 * trained,
        "activations": rows * full * kept_by_token(model, s.gradient_checkpointing),
        "logits": rows * s.max_response * config.vocab_size * LOGIT_BYTES,
    }


def peak(parts: dict[str, float]) -> float:
    """Bytes at the fullest moment: the update or the rollout, whichever needs more beside what is always there."""
    update, play = ("gradients", "activations", "logits"), ("cache", "prefill")
    always = sum(value for part, value in parts.items() if part not in update + play)
    return always + max(sum(parts.get(part, 0.0) for part in moment) for moment in (update, play))


def report(s: Settings) -> str:
    """What `train.py --dry_run` prints. A model other than a small one is planned as for a machine with CUDA."""
    name, reason = choose_model(s.model, s.env, torch.cuda.is_available())
    config, found = shape_of(name)
    lean, processes = getattr(config, "lean_prompts", False), int(os.environ.get("WORLD_SIZE", "1"))
    domain = envs.load(s.env, lean=lean, **envs.read_args(s.env_args))
    s = resolve(s, lean, True, domain)
    domain.max_turns = s.max_turns
    seen = lengths(domain, name, lean)
    model = without_weights(config, getattr(torch, s.dtype), s.lora).model
    count, trained = model.num_parameters(), model.num_parameters(only_trainable=True)
    adapter = f", {trained:,} of them its adapter's" if s.lora else ""
    episodes, parts = s.groups * s.group_size, memory(s, model, seen, processes)
    rows = episodes * s.max_turns
    tokens = rows * (seen.mean + s.max_response) / 1e6
    shown = ", ".join(f"{part} {value / GIB:.3g}" for part, value in parts.items() if value)
    return "\n".join(
        [
            *(f"{flag:24s} {value}" for flag, value in asdict(s).items()),
            f"model: {name} ({reason}); {count:,} parameters ({found}){adapter}",
            f"games: {domain.source}, {len(domain.tasks('train')):,} training tasks",
            f"prompts: {seen.mean:.0f} tokens on average, at most {seen.longest} ({seen.how})",
            f"a step: {episodes} episodes, at most {rows:,} rows and {tokens:.2f} million tokens",
            f"memory of each of {processes} process(es), estimated, GiB: {shown}; peak {peak(parts) / GIB:.3g}",
        ]
    )
