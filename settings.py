"""Every switch of a training run: one frozen dataclass, a line a field, and the command line made from it.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
                                               [settings] serves ^^^^^

A field's help says what it does, its unit, and the paper's value where that differs. Fields that are None depend on
the model: `resolve` fills them from LAPTOP (the small policies that ship), PAPER (any other model), or TRIAL (any other
model without CUDA: a few short episodes that show whether everything works).
"""

import math
import sys
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from itertools import pairwise
from types import UnionType
from typing import get_args, get_origin, get_type_hints

from transformers import HfArgumentParser

import envs
from shaping import CENTRES, CLIPS, JOINS, SCALES
from teacher import PLACEMENTS, SKILLS, TEACHERS
from tva import LEVELS

DISTILLED = ("sdar", "opsd", "grpo_opsd", "skill_sd")  # methods with a loss of their own (sdar.py)
NEEDS_TEACHER = ("adrs", "rlsd", *DISTILLED)
SKILL_IN_PROMPT = ("skill_grpo", "skill_prompt")  # the acting policy reads the skill; evaluated with and without
EVALUATION_ONLY = ("vanilla", "skill_prompt")
METHODS = ("none", "vanilla", *SKILL_IN_PROMPT, *NEEDS_TEACHER)
BACKBONES = ("grpo", "gigpo")


def _(default, help: str):
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Settings:
    # what is trained on what
    env: str = _("alfworld", "alfworld, webshop or search")
    env_args: list[str] = field(default_factory=list, metadata={"help": "options of the environment, KEY=VALUE ..."})
    model: str | None = _(None, "hub id, local folder, or tiny; default: tiny without CUDA, Qwen2.5-3B-Instruct with")
    method: str = _("adrs", f"one of {', '.join(METHODS)}; none is the bare backbone")
    backbone: str = _("grpo", "grpo or gigpo")
    tva: bool = _(False, "ADRS: gate the token term by the teacher-value association")
    preset: str | None = _(None, "paper: the published formula and schedule; always: the term in every step")
    # the run
    run: str | None = _(
        None, "name of the run, NAME or TABLE/NAME under --results; default: made from settings and time"
    )
    results: str = _("results", "folder of all runs")
    resume: bool = _(False, "go on from the run's newest whole checkpoint")
    overwrite: bool = _(False, "delete a run of that name first")
    dry_run: bool = _(False, "print settings, rows, tokens and memory (an estimate), and stop; no weights are loaded")
    seed: int = _(0, "every random stream derives from it")
    steps: int | None = _(None, "training steps (paper 150); 0 only evaluates")
    threads: int = _(0, "CPU threads of each process; 0: the cores shared out")
    tracker: str | None = _(None, "also report to an accelerate tracker such as tensorboard or wandb")
    save_every: int = _(50, "steps between checkpoints; one is always written at the end")
    keep: int = _(2, "checkpoints kept, at least 1")
    silence: float = _(1800.0, "seconds without a finished phase until the stacks of all threads are printed; 0: never")
    # data
    fraction: float = _(1.0, "share of the training tasks, seeded and stratified by type")
    max_turns: int | None = _(None, "model calls an episode (paper: ALFWorld 50, WebShop 15, search 4)")
    groups: int | None = _(None, "tasks a step (paper 16; search 128)")
    group_size: int | None = _(None, "episodes of each task, at least 2 (paper 8)")
    temperature: float = _(1.0, "of sampling in training")
    max_response: int | None = _(None, "tokens a response (paper 512)")
    engine: str = _("hf", "what samples: hf (transformers' generate) or vllm (requirements-vllm.txt)")
    vllm_memory: float = _(0.3, "share of the GPU's memory for vLLM, beside training")
    # evaluation
    eval_every: int | None = _(None, "steps between evaluations (paper 5)")
    eval_split: str = _("unseen", "panel: unseen, seen or train")
    eval_tasks: int | None = _(None, "size of the panel, each task once; 0: the whole split (paper 128 draws)")
    eval_temperatures: list[float] = field(
        default_factory=lambda: [0.4, 1.0], metadata={"help": "each in turn (paper 0.4)"}
    )
    episodes: int = _(4, "episodes written to episodes.jsonl at each evaluation")
    probe: int | None = _(None, "episodes of the initial policy that every evaluation scores with and without skill")
    # optimisation
    lr: float | None = _(None, "AdamW, constant (paper 1e-6)")
    mini_rows: int | None = _(None, "rows of an optimizer step, over all processes; 0: the whole batch (paper 256)")
    micro_tokens: int | None = _(None, "padded tokens of a forward pass")
    clip: float = _(0.2, "ratio clip")
    dual_clip: float = _(3.0, "bound of the loss where the advantage is negative")
    kl: float | None = _(None, "coefficient of the k3 KL to the initial policy (paper 0.01, search 0.001); 0: no pass")
    entropy: float = _(0.001, "coefficient of the entropy bonus")
    policy_coef: float | None = _(None, "coefficient of the policy loss; 0 for opsd, else 1")
    max_grad_norm: float = _(1.0, "gradient clipping")
    skip_nonfinite: bool = _(
        False, "leave out and count micro-batches whose loss is not finite, unless most are; default: stop at the first"
    )
    lora: int | None = _(None, "LoRA rank, 0: full fine-tuning; default 32, for the small policies 0")
    dtype: str | None = _(None, "float32 or bfloat16; default bfloat16 on CUDA")
    thinking: bool = _(True, "chat template's thinking mode, where it has one (Qwen3; the paper: off)")
    gradient_checkpointing: bool = _(False, "less memory, one more forward pass")
    # credit of the backbone
    penalty: float | None = _(None, "taken off an invalid turn's score (paper 0.1, search 0.01)")
    group_unit: str = _("row", "statistics of a group over: row (the authors' code) or episode")
    by_std: bool | None = _(None, "divide advantages by their deviation; default: grpo yes, gigpo no")
    gamma: float = _(0.95, "discount of GiGPO's step returns")
    omega: float = _(1.0, "weight of GiGPO's step advantage")
    anchor_similarity: float | None = _(None, "anchors as alike as this are one state (search 0.9, else 1)")
    # teacher
    skill: str = _("task", "task, general, shuffled (a wrong skill) or none")
    skills: str = _("task", "where skills come from: task (indexed by the task's type) or bank (searched, as in SDAR)")
    skills_topk: int = _(6, "items that the bank gives")
    skill_noise: float = _(0.0, "share of the training tasks that get a wrong skill")
    teacher: str = _("live", "live, frozen or ema")
    ema: float = _(0.95, "decay a step of the ema teacher")
    placement: str = _("system", "of the skill: system slot, or raw_prefix as in the authors' code")
    # ADRS: the token term
    eta: float | None = _(None, "its coefficient (paper 0.02 or 0.1)")
    score: str = _("teacher_logprob", "teacher_logprob, gap (to the student's), or noise (control)")
    centre: str = _("step", ", ".join(CENTRES))
    scale: str = _("step", ", ".join(SCALES))
    join: str = _("post_whiten", ", ".join(JOINS) + " (paper pre_whiten)")
    clip_term: float = _(0.2, "bound of the token term")
    clip_mode: str = _("adaptive", ", ".join(CLIPS))
    window_start: float | None = _(None, "the term acts after this share of the steps (paper 20/150)")
    window_stop: float | None = _(None, "and up to this one (paper 70/150)")
    zero_variance: str = _("skip", "groups whose scores are all equal: skip, or apply the term")
    credit: str = _("base", "base, or shaped: sum the term into the returns too (the authors' float-noise hazard)")
    flat_gate: float = _(1.0, "the gate without --tva; set it to a TVA run's mean gate for a matched ablation")
    # ADRS: the gate
    level: str = _("auto", ", ".join(LEVELS) + "; auto: L2-traj, with gigpo L3 (paper L2-row, L3)")
    tau: float = _(2.0, "steepness of the gate")
    alpha_norm: str = _("batch", "batch (paper) or group_z")
    tva_split: str = _("soft", "soft (paper) or median")
    gate_norm: bool = _(False, "divide TVA by its deviation over the batch")
    tva_pool: float = _(0.0, "decay a visit of a task's running TVA; 0: this batch alone (paper)")
    # baselines
    distil: float | None = _(None, "coefficient of the distillation loss (0.01; skill_sd 0.001)")
    beta: float | None = _(None, "steepness of its gate (5; grpo_opsd 0)")
    rlsd_start: float = _(0.5, "first mixing coefficient")
    rlsd_steps: int = _(100, "steps until it is 0")
    rlsd_clip: float = _(0.2, "clip of its ratio")


PUBLISHED = {"eta": 0.02, "window_start": 20 / 150, "window_stop": 70 / 150}
PRESETS = {
    "paper": {"join": "pre_whiten", "level": "auto", "group_unit": "row"} | PUBLISHED,
    "always": {"window_start": 0.0, "window_stop": 1.0},
}
LAPTOP = {
    "steps": 100, "groups": 8, "group_size": 8, "eval_tasks": 256, "max_response": 48, "eval_every": 50, "lr": 2e-4,
    "mini_rows": 160, "micro_tokens": 4096, "kl": 0.01, "lora": 0, "dtype": "float32", "probe": 8,
    **PUBLISHED,
}  # fmt: skip
PAPER = {
    "steps": 150, "groups": 16, "max_response": 512, "eval_every": 5, "lr": 1e-6, "mini_rows": 256,
    "micro_tokens": 16384, "kl": 0.01, "group_size": 8, "eval_tasks": 256, "probe": 8,
    **PUBLISHED,
}  # fmt: skip
TRIAL = {
    "steps": 1, "groups": 2, "group_size": 2, "eval_tasks": 2, "max_response": 64, "max_turns": 4, "micro_tokens": 2048,
    "probe": 0,
}  # fmt: skip
CHOICES = {
    "env": envs.NAMES, "method": METHODS, "backbone": BACKBONES, "level": LEVELS, "join": JOINS, "centre": CENTRES,
    "scale": SCALES, "clip_mode": CLIPS, "skill": SKILLS, "skills": ("task", "bank"), "teacher": TEACHERS,
    "placement": PLACEMENTS,
    "score": ("teacher_logprob", "gap", "noise"), "credit": ("base", "shaped"), "zero_variance": ("skip", "apply"),
    "group_unit": ("row", "episode"), "alpha_norm": ("batch", "group_z"), "tva_split": ("soft", "median"),
    "engine": ("hf", "vllm"),
    "preset": (None, *PRESETS), "eval_split": ("unseen", "seen", "train"), "dtype": (None, "float32", "bfloat16"),
}  # fmt: skip


AT_LEAST_ONE = ("groups", "save_every", "keep", "eval_every", "max_turns", "max_response", "micro_tokens")


def parse(args: list[str] | None = None) -> Settings:
    """Settings from the command line, or from one YAML or JSON file. Abbreviations are off: a typing error stops."""
    args = sys.argv[1:] if args is None else args
    parser = HfArgumentParser(Settings, allow_abbrev=False)
    if len(args) == 1 and args[0].endswith((".yaml", ".yml", ".json")):
        read = parser.parse_json_file if args[0].endswith(".json") else parser.parse_yaml_file
        try:
            (settings,) = read(args[0])
            check(settings)
        except FileNotFoundError:
            raise
        except Exception as error:  # of YAML, JSON, the encoding or a setting: the file is what must be mended
            raise ValueError(f"{args[0]}: {str(error)[:500]}") from error
        return settings
    preset = next((value for flag, value in pairwise(args) if flag == "--preset"), None)
    parser.set_defaults(**PRESETS.get(preset, {}))
    (settings,) = parser.parse_args_into_dataclasses(args)
    check(settings)
    return settings


def check(s: Settings) -> None:
    """Raises ValueError, naming the flag, for a setting or a combination that makes no sense."""
    for name, wanted in get_type_hints(Settings).items():
        _check_type(name, getattr(s, name), wanted)
    for name, choices in CHOICES.items():
        if getattr(s, name) not in choices:
            raise ValueError(f"--{name} {getattr(s, name)}: unknown, choose one of {', '.join(map(str, choices))}")
    if s.group_size is not None and s.group_size < 2:
        raise ValueError(f"--group_size {s.group_size}: a group compares episodes, give at least 2")
    for name in AT_LEAST_ONE:
        if getattr(s, name) is not None and getattr(s, name) < 1:
            raise ValueError(f"--{name} {getattr(s, name)}: give at least 1")
    if s.method in EVALUATION_ONLY and s.steps:
        raise ValueError(f"--method {s.method} only evaluates: --steps {s.steps} makes no sense")
    if s.steps is not None and s.steps < 0:
        raise ValueError(f"--steps {s.steps}: give 0 or more")
    if not 0 < s.fraction <= 1:
        raise ValueError(f"--fraction {s.fraction}: give a share above 0 and at most 1")
    if s.temperature <= 0:
        raise ValueError(f"--temperature {s.temperature}: training samples, give a number above 0")
    start, stop = s.window_start or 0.0, 1.0 if s.window_stop is None else s.window_stop
    if not 0 <= start <= stop <= 1:
        raise ValueError("--window_start and --window_stop are shares of the steps: 0 <= start <= stop <= 1")
    if s.tva and s.method != "adrs":
        raise ValueError(f"--tva is a switch of --method adrs, not of {s.method}")
    if s.tva_pool > 0 and (s.level in ("L1", "L3") or (s.level == "auto" and s.backbone == "gigpo")):
        raise ValueError("--tva_pool follows a task's TVA and needs --level L2-traj or L2-row")
    if s.level == "L1" and s.tva and s.kl == 0:
        raise ValueError("--level L1 compares with the reference policy, which --kl 0 leaves out")
    if s.skills == "bank" and (s.skill != "task" or s.skill_noise > 0):
        raise ValueError("--skill and --skill_noise change the task-indexed text; --skills bank searches instead")
    if s.engine == "vllm" and find_spec("vllm") is None:
        raise ValueError("--engine vllm: the package is missing; pip install -r requirements-vllm.txt, or --engine hf")
    if s.resume and s.run is None:
        raise ValueError("--resume: name the run with --run")


def _check_type(name: str, value, wanted) -> None:
    """Files can hold any type: `seed: two`, or `lr: 1e-6`, which YAML takes for a text."""
    kinds = get_args(wanted) if isinstance(wanted, UnionType) else (get_origin(wanted) or wanted,)
    if type(value) not in kinds and not (type(value) is int and float in kinds):
        names = " or ".join("nothing" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ValueError(f"--{name} {value!r:.80}: give {names}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"--{name} {value}: give a finite number")
    for item in value if isinstance(value, list) else ():
        _check_type(name, item, get_args(wanted)[0])


def resolve(s: Settings, small: bool, cuda: bool, domain) -> Settings:
    """Fills every None that depends on the model, the device or the environment."""
    known = {"penalty": domain.invalid_penalty, "max_turns": domain.max_turns} | (LAPTOP if small else PAPER)
    known |= {} if small else {"lora": 32, "dtype": "bfloat16" if cuda else "float32"}
    known["policy_coef"] = 0.0 if s.method == "opsd" else 1.0
    known["by_std"] = s.backbone == "grpo"
    known["anchor_similarity"] = 0.9 if s.env == "search" else 1.0
    known["distil"] = 0.001 if s.method == "skill_sd" else 0.01
    known["beta"] = 0.0 if s.method == "grpo_opsd" else 5.0
    if s.env == "search":  # the small policy's: LOG.md, 2026-12-01
        known |= {"groups": 16, "lr": 3e-4, "kl": 0.05} if small else {"groups": 128, "kl": 0.001}
    if not small and not cuda:
        known |= TRIAL
    if s.method in EVALUATION_ONLY:
        known["steps"] = 0
    empty = {f.name for f in fields(s) if getattr(s, f.name) is None}
    return replace(s, **{name: value for name, value in known.items() if name in empty})
