"""One training step of a Qwen2.5-3B-shaped policy with random weights: tokens/s, memory, share of peak FLOP/s.

    python -m bench.gpu            # on one CUDA GPU, under five minutes
    python -m bench.gpu --toy      # the same code on a CPU at toy size; its numbers say nothing

What is timed is train.py's own: 128 episodes of ALFWorld cut to 4 turns, log-probs of policy, reference and teacher,
credit, and the update of a LoRA adapter. A phase ends when its numbers are on the CPU, so the clock needs no barrier.
Random weights hardly ever end a response: each is 128 tokens long, as the authors' are on average. Left out: what they
learn, which is nothing; vLLM.
"""

import argparse
import platform
import time
from dataclasses import dataclass, replace

import torch
import transformers
from accelerate import Accelerator
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerFast

import envs
from envs.base import Domain
from plan import GIB, SHAPES, scripted_prompts
from policy import Policy, add_lora
from record import Clock
from rollout import collate
from settings import Settings, parse, resolve
from teacher import SkillProvider, Teacher, skill_folder
from train import credit, draw_tasks, gather_world, log_probs, play_step
from tva import Pool
from update import update

MODEL = "Qwen/Qwen2.5-3B-Instruct"
STEP = "--env alfworld --method adrs --tva --preset always --steps 1 --max_turns 4 --max_response 128"
TOY = "--groups 2 --group_size 2 --max_turns 2 --max_response 8 --mini_rows 4 --dtype float32 --lora 2"
TOY_SHAPE = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000,
    "eos_token_id": 1, "bos_token_id": 0,
}  # fmt: skip
PEAK_TFLOPS = {"H200": 989, "H100 PCIe": 756, "H100": 989, "H20": 148, "A100": 312, "L40S": 362}  # bf16, dense
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def stand_in(texts: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of so few words that a token has about as many characters as Qwen's (plan.CHARACTERS)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    control = ["<|endoftext|>", "<|im_end|>", "<|im_start|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=550, special_tokens=control, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=control[0], eos_token=control[1],
        additional_special_tokens=control[2:], chat_template=CHATML, padding_side="left",
    )  # fmt: skip


def random_policy(config: PretrainedConfig, domain: Domain, provider: SkillProvider, s: Settings, device) -> Policy:
    """A policy with random weights, drawn on `device`, and Qwen's tokenizer where this machine has it."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(MODEL, local_files_only=True)
    except (OSError, ValueError):
        texts = [*scripted_prompts(domain, lean=False), provider.general, *provider.texts.values()]
        tokenizer = stand_in(texts)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, s.dtype)).eval()
    policy = Policy(model, tokenizer, lean=False)
    add_lora(policy, s.lora)
    return policy


@dataclass(frozen=True)
class Phase:
    """What a phase took. `prompt` and `response`: tokens that it read and sampled or scored, padding aside."""

    seconds: float
    prompt: int
    response: int
    memory: float  # bytes at most; 0 on a CPU


def one_step(accelerator: Accelerator, policy: Policy, domain: Domain, provider: SkillProvider, s: Settings) -> dict:
    """A step of train.py by phases: rollout, old, ref, teacher, update. Scoring has one figure of memory for its
    three."""
    teacher = Teacher(policy, provider)
    trained = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
    model, optimizer = accelerator.prepare(policy.model, torch.optim.AdamW(trained, lr=s.lr, weight_decay=0.01))
    clock, memory = Clock(), {}

    def fullest(*phases: str) -> None:
        if torch.cuda.is_available():
            memory.update(dict.fromkeys(phases, torch.cuda.max_memory_allocated()))
            torch.cuda.reset_peak_memory_stats()

    trajectories = play_step(accelerator, policy, domain, draw_tasks(domain.tasks("train"), s, 1), s, 1, None)
    batch = collate(trajectories, policy.tokenizer.pad_token_id)
    clock.lap("rollout")
    fullest("rollout")
    logps = log_probs(accelerator, policy, policy.model, batch, teacher, None, s, clock)
    fullest("old", "ref", "teacher")
    world, mine = gather_world(batch, logps)
    made = credit(s, world, 1, Pool(0.0))
    update(accelerator, model, optimizer, s, batch, logps, made.adv[mine])
    clock.lap("update")
    fullest("update")
    prompt, response = int(batch.rows.prompt_len.sum()), int(batch.rows.response_len.sum())
    told = sum(len(ids) for ids in teacher.prompts(batch))
    return {
        name: Phase(clock.seconds[f"time/{name}_s"], told if name == "teacher" else prompt, response,
                    memory.get(name, 0.0))
        for name in ("rollout", "old", "ref", "teacher", "update")
    }  # fmt: skip


def arithmetic(model: torch.nn.Module, name: str, phase: Phase) -> float:
    """FLOP that a phase needs: two a weight and token going forward, the output layer at responses alone. The update
    goes back through frozen weights too, but makes no gradient for them: twice the forward pass. Attention's own
    products and the adapter (one or two per cent each) are left out."""
    config = model.config
    head = config.vocab_size * config.hidden_size
    frozen = sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad)
    body = frozen - (head if config.tie_word_embeddings else 2 * head)
    forward = 2 * body * (phase.prompt + phase.response) + 2 * head * phase.response
    return forward * (2 if name == "update" else 1)


def peak_flops(device: str) -> float | None:
    """FLOP/s of a GPU in bf16 by its maker's sheet, None where it is not in the list."""
    return next((1e12 * tflops for name, tflops in PEAK_TFLOPS.items() if name in device), None)


def table(phases: dict[str, Phase], model: torch.nn.Module, top: float | None) -> str:
    """The phases as rows of bench/README.md. Tokens/s: of rollout those sampled, else those scored."""
    lines = ["| phase | seconds | tokens/s | share of peak FLOP/s | memory, GiB |", "|---|---|---|---|---|"]
    for name, phase in phases.items():
        tokens = phase.response if name == "rollout" else phase.prompt + phase.response
        share = f"{100 * arithmetic(model, name, phase) / phase.seconds / top:.1f} %" if top else "unknown"
        memory = f"{phase.memory / GIB:.1f}" if phase.memory else "unknown"
        lines.append(f"| {name} | {phase.seconds:.1f} | {tokens / phase.seconds:,.0f} | {share} | {memory} |")
    return "\n".join(lines)


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--toy", action="store_true", help="a few thousand weights on a CPU")
    parser.add_argument("--micro_tokens", type=int, default=8192, help="padded tokens of a forward pass")
    options = parser.parse_args(args)
    cuda = torch.cuda.is_available()
    if not cuda and not options.toy:
        parser.error("no CUDA device: this needs one; --toy shows the code at work on a CPU")
    accelerator = Accelerator(cpu=not cuda)
    domain = envs.load("alfworld")
    flags = f"{STEP} --micro_tokens {options.micro_tokens} {TOY if options.toy else ''}"
    s = resolve(parse(flags.split()), small=False, cuda=True, domain=domain)
    domain.max_turns = s.max_turns
    shape = SHAPES[MODEL] | (TOY_SHAPE if options.toy else {})
    config = AutoConfig.for_model(**shape)
    provider = SkillProvider(skill_folder("alfworld", lean=False))
    begun = time.perf_counter()
    policy = random_policy(config, domain, provider, s, accelerator.device)
    one_step(accelerator, policy, domain, provider, replace(s, groups=1, group_size=2))  # warms kernels up
    phases = one_step(accelerator, policy, domain, provider, s)
    device = torch.cuda.get_device_name() if cuda else f"CPU ({platform.machine()})"
    played = phases["rollout"]
    print(f"{device}; torch {torch.__version__}, transformers {transformers.__version__}; {time.strftime('%Y-%m-%d')}")
    print(
        f"{policy.model.num_parameters():,} parameters in {s.dtype}, LoRA {s.lora}; {s.groups * s.group_size} episodes "
        f"of {s.max_turns} turns, games: {domain.source}; {played.prompt:,} prompt and {played.response:,} response "
        f"tokens; micro-batches of {s.micro_tokens}; {time.perf_counter() - begun:.0f} s in all"
    )
    print(table(phases, policy.model, peak_flops(device)))


if __name__ == "__main__":
    main()
