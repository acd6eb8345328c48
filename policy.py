"""From a model's name to a policy: model, tokenizer, prompts as ids, log-probs of responses.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
            ^^^^^^^ [policy] serves these                          ^^^^^

`token_logp` is the only place in the repository where the causal shift happens. Left out: sampling (rollout.py),
losses (grpo.py). Shapes: B rows (one row is one agent turn), P prompt tokens (left padded), T response tokens
(right padded, end token included); log-probs in nats, at the sampling temperature.
"""

import contextlib
import copy
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

HERE = Path(__file__).parent
DEFAULT_CUDA_MODEL = "Qwen/Qwen2.5-3B-Instruct"
LOGITS = 2**24  # numbers in a float32 tensor of vocabulary size, at most (a row is never split): 64 MiB


@dataclass
class Policy:
    """A causal language model that acts. `lean`: it reads the few-word prompts (set in its config.json)."""

    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerBase
    lean: bool
    thinking: bool = True  # False: the chat template closes the think block in the prompt (Qwen3)
    new_adapter: bool = False  # the adapter is untrained: switched off, or on, it is the initial policy
    engine: Callable | None = None  # samples in place of rollout.generate, under the same signature (vllm_engine.py)

    @property
    def end_ids(self) -> list[int]:
        """Token ids that end a turn."""
        ends = self.model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        return sorted({end for end in [*ends, self.tokenizer.eos_token_id] if end is not None})

    @property
    def think_in_prompt(self) -> bool:
        """Whether the generation prompt already holds an empty think block, so that responses need none."""
        return self.template_text([{"role": "user", "content": "x"}]).rstrip().endswith("</think>")

    def template_text(self, messages: list[dict]) -> str:
        return self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=self.thinking
        )

    def encode(self, user: str, system: str | None = None) -> list[int]:
        """The ids of a prompt: chat template around the user message, and a system message where one is given.
        Control tokens inside either text are broken up, so that a page cannot speak as another role."""
        messages = [{"role": "user", "content": self.neutral(user)}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": self.neutral(system)})
        return self.tokenizer(self.template_text(messages), add_special_tokens=False)["input_ids"]

    def encode_raw(self, text: str) -> list[int]:
        """The ids of a text outside any role."""
        return self.tokenizer(self.neutral(text), add_special_tokens=False)["input_ids"]

    def decode(self, response_ids: list[int]) -> str:
        """The text of a response, its end token left out."""
        ids = response_ids[:-1] if response_ids and response_ids[-1] in self.end_ids else response_ids
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def neutral(self, text: str) -> str:
        """`text` with a space set into every control token of this tokenizer, and lone surrogates replaced."""
        text = text.encode("utf-8", "replace").decode("utf-8")
        while found := next((token for token in self.control if token in text), None):
            text = text.replace(found, f"{found[0]} {found[1:]}")
        return text

    @cached_property
    def control(self) -> list[str]:
        """The tokenizer's control tokens: those that it names, and those that it marks as special without a name."""
        marked = [token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special]
        return sorted({token for token in [*self.tokenizer.all_special_tokens, *marked] if len(token) > 1})


def choose_model(name: str | None, env: str, cuda: bool) -> tuple[str, str]:
    """The model to load and, in words, why. `tiny` is the small policy of `env` that ships with the repository."""
    if name is None and cuda:
        return DEFAULT_CUDA_MODEL, "CUDA is available"
    name, reason = ("tiny", "no CUDA device") if name is None else (name, "asked for by --model")
    return (str(HERE / "models" / f"tiny-{env}"), reason) if name == "tiny" else (name, reason)


def is_lean(name: str) -> bool:
    """Whether `name` is the folder of a small policy."""
    config = Path(name) / "config.json"
    return config.is_file() and json.loads(config.read_text()).get("lean_prompts", False)


def load_policy(name: str, dtype: str = "float32", thinking: bool = True, device: str = "cpu") -> Policy:
    """Loads a hub id or a local folder: safetensors, one GGUF file, or an adapter that names its base.

    Raises FileNotFoundError where `name` looks like a path and is none, ValueError where tokenizer or chat
    template are missing.
    """
    folder = Path(name)
    gguf = sorted(folder.glob("*.gguf")) if folder.is_dir() else []
    looks_local = name.startswith((".", "/", "~")) or folder.exists() or name.count("/") > 1
    if looks_local and not folder.is_dir():
        raise FileNotFoundError(f"--model {name}: no such folder (make a small policy: `python warmstart.py`)")
    if (folder / "adapter_config.json").is_file():
        return _with_adapter(folder, dtype, thinking, device)
    name = str(folder.resolve()) if folder.is_dir() else name  # an adapter's file names its base for good
    if folder.is_dir() and not gguf and not list(folder.glob("tokenizer*")):
        raise ValueError(f"--model {name}: the folder holds no tokenizer (tokenizer.json is missing)")
    options = {"dtype": getattr(torch, dtype)}
    if gguf:
        from transformers import GgufConfig

        options |= {"gguf_file": gguf[0].name, "quantization_config": GgufConfig(dequantize=True)}
    else:
        options["use_safetensors"] = True  # a pickle beside them is never opened
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **({"gguf_file": gguf[0].name} if gguf else {}))
        model = AutoModelForCausalLM.from_pretrained(name, **options)
    except Exception as error:  # tokenizers and safetensors raise kinds of their own on a damaged file
        raise ValueError(f"--model {name}: cannot be loaded ({type(error).__name__}: {str(error)[:500]})") from error
    if tokenizer.chat_template is None:
        raise ValueError(f"--model {name}: its tokenizer has no chat template; use an instruct model")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token  # any id does: masks come from lengths
    model.to(device).eval()
    return Policy(model, tokenizer, getattr(model.config, "lean_prompts", False), thinking)


def _with_adapter(folder: Path, dtype: str, thinking: bool, device: str) -> Policy:
    """A saved adapter, to be trained on, upon the base that its adapter_config.json names."""
    from peft import PeftModel

    base = json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]
    policy = load_policy(base, dtype, thinking, device)
    policy.model = PeftModel.from_pretrained(policy.model, folder, is_trainable=True).eval()
    return policy


def add_lora(policy: Policy, rank: int, seed: int = 0) -> None:
    """Wraps the model in LoRA of the given rank on every linear layer; dropout 0, so that scoring is exact. Its first
    weights are drawn by `seed`."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        policy.model, policy.new_adapter = get_peft_model(policy.model, config).eval(), True


@contextlib.contextmanager
def reference(model: torch.nn.Module, frozen: torch.nn.Module | None):
    """Gives the initial policy: `frozen` where there is a copy, else `model` with its adapter switched off."""
    if frozen is not None:
        yield frozen
    else:
        with model.disable_adapter():
            yield model


@contextlib.contextmanager
def layers_recomputed(model: torch.nn.Module):
    """Within it, layers whose gradient checkpointing is on keep no activations and compute them again in the backward
    pass. That works in training mode alone, so these layers get its flag, and nothing else: dropout stays off."""
    layers = [layer for layer in model.modules() if getattr(layer, "gradient_checkpointing", False)]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False


def frozen_copy(model: torch.nn.Module) -> torch.nn.Module:
    """A copy in evaluation mode that takes no gradient."""
    return copy.deepcopy(model).eval().requires_grad_(False)


@dataclass(frozen=True)
class Rows:
    """What a forward pass needs of some rows: prompts left padded [B, P], responses right padded [B, T], lengths.
    `family` [B]: rows of one number (a task's) have prompts that begin alike, which `token_logp` then reads once."""

    prompt_ids: Tensor
    prompt_len: Tensor
    response_ids: Tensor
    response_len: Tensor
    family: Tensor | None = None

    @property
    def mask(self) -> Tensor:
        """[B, T] bool: True on the response's tokens. From lengths, never from token values."""
        return torch.arange(self.response_ids.shape[1], device=self.response_len.device) < self.response_len[:, None]

    def take(self, index: Tensor) -> "Rows":
        """The rows `index`, their padding cut to what these rows need."""
        prompt_len, response_len = self.prompt_len[index], self.response_len[index]
        skip = self.prompt_ids.shape[1] - int(prompt_len.max())
        width = int(response_len.max())
        family = None if self.family is None else self.family[index]
        return Rows(self.prompt_ids[index, skip:], prompt_len, self.response_ids[index, :width], response_len, family)

    def to(self, device) -> "Rows":
        parts = (getattr(self, name) for name in self.__dataclass_fields__)
        return Rows(*(None if part is None else part.to(device) for part in parts))

    @property
    def shared(self) -> int:
        """How many tokens all prompts begin with, where all rows are of one family, else 0. A prompt's last token does
        not count: its logits are needed."""
        if self.family is None or len(self.family) == 1 or (self.family != self.family[0]).any():
            return 0
        column = torch.arange(int(self.prompt_len.min()) - 1, device=self.prompt_len.device)
        start = self.prompt_ids.gather(1, self.prompt_ids.shape[1] - self.prompt_len[:, None] + column)
        return int((start == start[0]).all(0).cumprod(0).sum())


def pad_left(ids: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Lists of ids as a left padded matrix [B, P] and their lengths [B]."""
    lengths = torch.tensor([len(row) for row in ids])
    width = int(lengths.max())
    return torch.tensor([[pad] * (width - len(row)) + list(row) for row in ids]), lengths


def pad_right(ids: list[list[int]], pad: float) -> tuple[Tensor, Tensor]:
    """Lists of ids (or log-probs) as a right padded matrix [B, T] and their lengths [B]."""
    lengths = torch.tensor([len(row) for row in ids])
    width = int(lengths.max())
    return torch.tensor([list(row) + [pad] * (width - len(row)) for row in ids]), lengths


def token_logp(model: torch.nn.Module, rows: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-prob and entropy of every response token, both [B, T] in nats, 0 outside the mask.

    log pi(y_j | prompt, y_<j) at logits / temperature: the logits at position k speak of token k + 1, so the
    last T + 1 positions are kept and the last of them dropped. Vocabulary-sized tensors exist for these alone, in
    float32 for a few rows at a time: `_pick` is computed again in the backward pass (bench/logp_memory.py).
    """
    width, shared, past = rows.response_ids.shape[1], rows.shared, None
    if shared:  # the beginning of all prompts, in one row; every row goes on from there
        first = rows.prompt_ids.shape[1] - int(rows.prompt_len[0])
        past = model(input_ids=rows.prompt_ids[:1, first : first + shared], use_cache=True, logits_to_keep=1).cache
        past.batch_repeat_interleave(len(rows.prompt_ids))
        rows = replace(rows, prompt_ids=rows.prompt_ids[:, shared:], prompt_len=rows.prompt_len - shared)
    ids = torch.cat([rows.prompt_ids, rows.response_ids], 1)  # [B, P + T]
    column = torch.arange(rows.prompt_ids.shape[1], device=ids.device)
    in_prompt = column >= rows.prompt_ids.shape[1] - rows.prompt_len[:, None]
    attention = torch.cat([in_prompt.new_ones(len(ids), shared), in_prompt, rows.mask], 1).long()
    position = (attention.cumsum(1) - 1).clamp(min=0)[:, shared:]
    out = model(
        input_ids=ids, attention_mask=attention, position_ids=position, cache=past, use_cache=shared > 0,
        logits_to_keep=width + 1,
    )  # fmt: skip
    logits = out.logits[:, :-1]  # [B, T, vocabulary]
    count = max(1, LOGITS // (width * logits.shape[-1]))
    if len(ids) <= count:
        logp, entropy = _pick(logits, rows.response_ids, temperature)
    else:
        parts = zip(logits.split(count), rows.response_ids.split(count), strict=True)
        picked = [checkpoint(_pick, *part, temperature, use_reentrant=False) for part in parts]
        logp, entropy = (torch.cat(pieces) for pieces in zip(*picked, strict=True))
    return logp.where(rows.mask, 0.0), entropy.where(rows.mask, 0.0)


def _pick(logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-prob of the ids [B, T] and entropy, both [B, T], from logits [B, T, vocabulary]."""
    logp = (logits.float() / temperature).log_softmax(-1)
    return logp.gather(-1, ids[..., None])[..., 0], -(logp.exp() * logp).sum(-1)


def micro_batches(rows: Rows, tokens: int) -> list[Tensor]:
    """Indices of the rows in batches of at most `tokens` padded tokens (at least one row each), sorted by length; or
    family by family, where reading what a family shares once saves more than the padding costs."""
    length = (rows.prompt_len + rows.response_len).tolist()
    by_length = sorted(range(len(length)), key=lambda row: (length[row], row))
    plans = [_cut(rows, by_length, tokens)]
    if rows.family is not None:
        family = rows.family.tolist()
        families = groupby(sorted(by_length, key=family.__getitem__), family.__getitem__)
        plans.append([batch for _, members in families for batch in _cut(rows, list(members), tokens)])
    return min(plans, key=lambda plan: sum(_cost(rows.take(batch)) for batch in plan))


def _cut(rows: Rows, order: list[int], tokens: int) -> list[Tensor]:
    """Rows in an order, cut into batches of at most `tokens` padded tokens."""
    prompt, response = rows.prompt_len.tolist(), rows.response_len.tolist()
    batches, current, widest = [], [], (0, 0)
    for row in order:
        wider = (max(widest[0], prompt[row]), max(widest[1], response[row]))
        if current and sum(wider) * (len(current) + 1) > tokens:
            batches.append(torch.tensor(current))
            current, wider = [], (prompt[row], response[row])
        current.append(row)
        widest = wider
    return [*batches, torch.tensor(current)] if current else batches


def _cost(part: Rows) -> int:
    """Padded tokens that a forward pass computes."""
    count, width = part.prompt_ids.shape
    return count * (width + part.response_ids.shape[1]) - (count - 1) * part.shared


@torch.no_grad()
def score(
    model: torch.nn.Module, rows: Rows, temperature: float, tokens: int, rounds: Callable[[int], int] | None = None
) -> Tensor:
    """`token_logp` without gradient over all rows, micro-batch by micro-batch: [B, T] on the CPU. Over sharded weights
    all processes make as many forward passes as the busiest: `rounds` turns this one's count into that; row 0 fills up,
    and no beginning is read apart.
    """
    device = next(model.parameters()).device
    logp = torch.zeros(rows.response_ids.shape)
    rows = replace(rows, family=None) if rounds else rows
    batches = micro_batches(rows, tokens)
    spare = rounds(len(batches)) - len(batches) if rounds else 0
    for index in [torch.arange(1)] * spare + batches:
        part = rows.take(index)
        logp[index, : part.response_ids.shape[1]] = token_logp(model, part.to(device), temperature)[0].cpu()
    return logp


def use_threads(count: int, processes: int) -> int:
    """Sets torch's threads on a CPU: `count`, or with 0 the cores shared out among the processes. `accelerate
    launch` sets OMP_NUM_THREADS=1, which would leave cores idle. Returns what was set."""
    count = count or max(1, (os.cpu_count() or 1) // processes)
    torch.set_num_threads(count)
    return count
