"""From a model's name to a policy: model, tokenizer, prompts as ids, log-probs of responses.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
            ^^^^^^^ [policy] serves these                          ^^^^^

`token_logp` is the only place in the repository where the causal shift happens. Left out: sampling (rollout.py),
losses (grpo.py). Shapes: B rows (one row is one agent turn), P prompt tokens (left padded), T response tokens
(right padded, end token included); log-probs in nats, at the sampling temperature.
"""

import contextlib
import copy
import os
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

HERE = Path(__file__).parent
DEFAULT_CUDA_MODEL = "Qwen/Qwen2.5-3B-Instruct"


@dataclass
class Policy:
    """A causal language model that acts. `lean`: it reads the few-word prompts (set in its config.json)."""

    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerBase
    lean: bool
    thinking: bool = True  # False: the chat template closes the think block in the prompt (Qwen3)

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
        control = [token for token in self.tokenizer.all_special_tokens if len(token) > 1]
        while found := next((token for token in control if token in text), None):
            text = text.replace(found, f"{found[0]} {found[1:]}")
        return text


def choose_model(name: str | None, env: str, cuda: bool) -> tuple[str, str]:
    """The model to load and, in words, why. `tiny` is the small policy of `env` that ships with the repository."""
    if name is None and cuda:
        return DEFAULT_CUDA_MODEL, "CUDA is available"
    name, reason = ("tiny", "no CUDA device") if name is None else (name, "asked for by --model")
    return (str(HERE / "models" / f"tiny-{env}"), reason) if name == "tiny" else (name, reason)


def load_policy(name: str, dtype: str = "float32", thinking: bool = True, device: str = "cpu") -> Policy:
    """Loads a hub id or a local folder (safetensors, or one GGUF file).

    Raises FileNotFoundError where `name` looks like a path and is none, ValueError where tokenizer or chat
    template are missing.
    """
    folder = Path(name)
    looks_local = name.startswith((".", "/", "~")) or folder.exists() or name.count("/") > 1
    if looks_local and not folder.is_dir():
        raise FileNotFoundError(f"--model {name}: no such folder (make a small policy: `python warmstart.py`)")
    options = {"dtype": getattr(torch, dtype)}
    gguf = sorted(folder.glob("*.gguf")) if folder.is_dir() else []
    if gguf:
        from transformers import GgufConfig

        options |= {"gguf_file": gguf[0].name, "quantization_config": GgufConfig(dequantize=True)}
    elif folder.is_dir() and not list(folder.glob("tokenizer*")):
        raise ValueError(f"--model {name}: the folder holds no tokenizer (tokenizer.json is missing)")
    tokenizer = AutoTokenizer.from_pretrained(name, **({"gguf_file": gguf[0].name} if gguf else {}))
    if tokenizer.chat_template is None:
        raise ValueError(f"--model {name}: its tokenizer has no chat template; use an instruct model")
    model = AutoModelForCausalLM.from_pretrained(name, **options).to(device)
    model.eval()
    return Policy(model, tokenizer, getattr(model.config, "lean_prompts", False), thinking)


def add_lora(policy: Policy, rank: int) -> None:
    """Wraps the model in LoRA of the given rank on every linear layer; dropout 0, so that scoring is exact."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    policy.model = get_peft_model(policy.model, config)


@contextlib.contextmanager
def reference(model: torch.nn.Module, frozen: torch.nn.Module | None):
    """Gives the initial policy: `frozen` where there is a copy, else `model` with its adapter switched off."""
    if frozen is not None:
        yield frozen
    else:
        with model.disable_adapter():
            yield model


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
    last T + 1 positions are kept and the last of them dropped. Vocabulary-sized tensors exist for these alone.
    """
    training = getattr(model, "module", model).training  # of the model itself, not of what spreads it over processes
    width, shared, past = rows.response_ids.shape[1], 0 if training else rows.shared, None
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
    logp = (out.logits[:, :-1].float() / temperature).log_softmax(-1)  # [B, T, vocabulary]
    token = logp.gather(-1, rows.response_ids[..., None])[..., 0]
    entropy = -(logp.exp() * logp).sum(-1)
    return token.where(rows.mask, 0.0), entropy.where(rows.mask, 0.0)


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
def score(model: torch.nn.Module, rows: Rows, temperature: float, tokens: int) -> Tensor:
    """`token_logp` without gradient over all rows, micro-batch by micro-batch: [B, T] on the rows' device."""
    device = next(model.parameters()).device
    logp = torch.zeros(rows.response_ids.shape)
    for index in micro_batches(rows, tokens):
        part = rows.take(index)
        logp[index, : part.response_ids.shape[1]] = token_logp(model, part.to(device), temperature)[0].cpu()
    return logp


def use_threads(count: int, processes: int) -> int:
    """Sets torch's threads on a CPU: `count`, or with 0 the cores shared out among the processes. `accelerate
    launch` sets OMP_NUM_THREADS=1, which would leave cores idle. Returns what was set."""
    count = count or max(1, (os.cpu_count() or 1) // processes)
    torch.set_num_threads(count)
    return count
