"""processes.py and configs/: what is refused, what is sharded, which copy plays; two processes over gloo."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator, debug_launcher
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env
from safetensors.torch import load_file
from torch.distributed.fsdp import CPUOffloadPolicy

import checkpoint
import processes
import rollout
from policy import frozen_copy
from settings import Settings
from tests.conftest import ROOT


@pytest.fixture
def fresh():
    """No accelerator of an earlier test: a process has only one state."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def rows(folder: Path, file: str) -> list[dict]:
    return [json.loads(line) for line in (folder / file).read_text().splitlines()]


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"WORLD_SIZE": "2"}, "2 processes were started but 1 are connected.*torchrun --nproc_per_node 2"),
        ({"MASTER_ADDR": "127.0.0.1"}, "several processes were asked for.*but one was started"),
        ({"ACCELERATE_USE_FSDP": "true"}, "FSDP was asked for, but accelerate starts NO: it needs GPUs"),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, "DEEPSPEED was asked for"),
    ],
)
def test_a_launch_that_accelerate_would_ignore_is_refused(fresh, monkeypatch, variables, complaint):
    monkeypatch.setattr(processes, "Accelerator", lambda **_: SimpleNamespace(
        num_processes=1, distributed_type=DistributedType.NO))  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match=complaint):
        processes.connect(cuda=False, mixed=False, tracker=None)


def test_accelerate_launch_with_two_cpu_processes_is_refused():
    """It starts one and says nothing; the file is the launched script, so that no model is loaded."""
    code = "import processes; processes.connect(cuda=False, mixed=False, tracker=None)"
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--cpu", "--num_processes", "2"]
    done = subprocess.run([*command, "--no_python", sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode != 0 and "but one was started" in done.stderr


def accelerator(kind: DistributedType, stage: int = 0, version: int = 2, precision: str = "no") -> SimpleNamespace:
    return SimpleNamespace(
        distributed_type=kind, deepspeed_plugin=SimpleNamespace(zero_stage=stage, deepspeed_config={}),
        is_fsdp2=kind == DistributedType.FSDP and version == 2, mixed_precision=precision, num_processes=2,
    )  # fmt: skip


FSDP, DEEPSPEED, ONE = DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.NO


@pytest.mark.parametrize(
    ("launched", "changes", "complaint"),
    [
        (accelerator(ONE), {"groups": 1}, "--groups 1: 2 processes play whole groups"),
        (accelerator(FSDP), {"lora": 8}, "use configs/ddp.yaml, or --lora 0"),
        (accelerator(DEEPSPEED, 3), {"lora": 8}, "nothing to shard"),
        (accelerator(FSDP, version=1), {}, "of FSDP, version 2"),
        (accelerator(DistributedType.MEGATRON_LM), {}, "MEGATRON_LM is not supported"),
        (accelerator(ONE, precision="fp16"), {}, "fp16 is not supported"),
        (accelerator(DEEPSPEED, 2), {"resume": True}, "without the optimizer"),
        (accelerator(FSDP), {"resume": True}, "start a new run with --model CHECKPOINT"),
    ],
)
def test_what_is_not_sound_is_refused(launched, changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        processes.refuse(launched, Settings(**{"lora": 0, "steps": 1, "groups": 2} | changes))


@pytest.mark.parametrize("launched", [accelerator(ONE), accelerator(FSDP), accelerator(DEEPSPEED, 2)])
def test_what_is_sound_passes(launched):
    processes.refuse(launched, Settings(lora=0, steps=1, groups=2))
    processes.refuse(accelerator(DEEPSPEED, 2), Settings(lora=8, steps=0, groups=1))  # nothing is trained


@pytest.mark.parametrize(
    ("launched", "changes", "apart"),
    [
        (accelerator(ONE), {"dtype": "float32"}, False),
        (accelerator(ONE), {"dtype": "bfloat16"}, True),
        (accelerator(ONE), {"dtype": "bfloat16", "lora": 8}, False),
        (accelerator(FSDP), {"dtype": "float32"}, True),
        (accelerator(DEEPSPEED, 2), {"dtype": "bfloat16"}, False),
        (accelerator(DEEPSPEED, 3), {"dtype": "bfloat16"}, True),
    ],
)
def test_which_copy_plays_and_which_is_saved(policy, launched, changes, apart):
    s, model = Settings(**{"lora": 0} | changes), policy.model
    trained = processes.apart(launched, policy, s)
    assert trained is model and (policy.model is not model) == apart
    if apart:
        assert next(policy.model.parameters()).dtype == getattr(torch, s.dtype)
        assert not any(p.requires_grad for p in policy.model.parameters())
    saved, optimizer = processes.kept(launched, policy, trained, "optimizer")
    assert saved.model is (policy.model if processes.sharded(launched) else trained)
    assert optimizer == ("optimizer" if launched.distributed_type == ONE else None)


def test_deepspeed_is_told_what_its_file_cannot_know(policy):
    launched, told = accelerator(DEEPSPEED, 2), []
    launched.prepare = lambda *parts: told.append(dict(launched.deepspeed_plugin.deepspeed_config)) or parts
    processes.prepare(launched, policy.model, None, Settings(max_grad_norm=0.3))
    assert told == [{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.3}]


def test_weights_are_handed_over(policy):
    playing = frozen_copy(policy.model).bfloat16()
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.5)
    processes.hand_over(policy.model, playing)
    for new, old in zip(playing.parameters(), policy.model.parameters(), strict=True):
        assert torch.equal(new, old.bfloat16())


# --------------------------------------------------------------------------------------------- whole runs


def test_full_fine_tuning_in_bf16_trains_float32_weights_beside_a_bf16_copy(fresh, launch, monkeypatch):
    """At a learning rate of 1e-6 a bf16 weight of 0.3 does not move: its neighbours are 0.002 away."""
    saved, played, save, generate = [], [], checkpoint.save, rollout.generate
    monkeypatch.setattr(checkpoint, "save", lambda *args: saved.append(args[2]) or save(*args))
    monkeypatch.setattr(rollout, "generate", lambda *args: played.append(args[0].model) or generate(*args))
    folder = launch("--steps", "2", "--dtype", "bfloat16", "--lr", "1e-6", "--method", "none")
    trained, before = saved[-1].model, load_file(folder.parent.parent / "model" / "model.safetensors")
    weights = load_file(folder / "checkpoint-2" / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    assert weights[name].dtype == torch.float32 and not torch.equal(weights[name], before[name])
    assert torch.equal(weights[name].bfloat16(), played[-1].state_dict()[name])
    assert played[-1] is not trained and played[-1].dtype == torch.bfloat16
    log = rows(folder, "log.jsonl")[1]
    assert 1e-6 < log["sampler/logp_diff"] < 0.1  # bf16 copy against float32 weights under autocast
    assert log["actor/ppo_kl"] == pytest.approx(0, abs=0.02)


class Fsdp2OnACpu(Accelerator):
    """accelerate itself shards on GPUs alone (on a CPU it falls back to DDP in silence), torch does on both."""

    distributed_type = property(lambda self: DistributedType.FSDP)
    is_fsdp2 = True

    def __init__(self, **options):
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2, auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=False,
            reshard_after_forward=True,
        )  # fmt: skip
        super().__init__(**options, fsdp_plugin=plugin)
        self.state.fsdp_plugin = plugin


@pytest.mark.parametrize("flags", [("--tva", "--micro_tokens", "70"), ("--mini_rows", "0", "--gradient_checkpointing")])
def test_two_sharded_processes_give_the_weights_of_one(fresh, launch, tmp_path, monkeypatch, flags):
    own = ("--steps", "2", "--preset", "always", "--groups", "3", "--eta", "0.3", "--lora", "0", *flags)
    one = launch(*own, "--run", "one")
    AcceleratorState._reset_state(reset_partial_state=True)  # the forked processes must not take over this one's
    monkeypatch.setattr(processes, "Accelerator", Fsdp2OnACpu)
    debug_launcher(launch, args=(*own, "--run", "two"), num_processes=2)
    two = tmp_path / "results" / "two"
    a, b = (load_file(run / "checkpoint-2" / "model.safetensors") for run in (one, two))
    for name, value in a.items():  # other micro-batches, other rounding; Adam blows it up where a gradient is almost 0
        difference = (value - b[name]).abs()
        assert (difference > 2e-6).float().mean() < 0.01 and difference.max() < 1e-3, name
    assert not (two / "checkpoint-2" / "optimizer.safetensors").exists()
    first, second = rows(one, "log.jsonl")[2], rows(two, "log.jsonl")[2]
    for key in ("tva/d_mean", "adrs/term_abs_mean", "actor/pg_loss", "actor/kl_loss", "actor/grad_norm"):
        assert second.get(key, 0) == pytest.approx(first.get(key, 0), abs=2e-5), key


# ------------------------------------------------------------------------------------------------- configs


def launched_with(name: str):
    args = launch_command_parser().parse_args(["--config_file", str(ROOT / "configs" / f"{name}.yaml"), "train.py"])
    return _validate_launch_command(args)[0]


def test_every_config_is_loaded_here():
    assert {path.stem for path in (ROOT / "configs").iterdir()} == {"cpu", "gpu", "ddp", "fsdp2", "zero2", "zero3"}


@pytest.mark.parametrize("name", ["cpu", "gpu", "ddp"])
def test_configs_without_shards(name):
    args = launched_with(name)
    assert args.use_cpu == (name == "cpu") and args.multi_gpu == (name == "ddp")
    assert args.mixed_precision == ("no" if name == "cpu" else "bf16")
    assert not args.use_fsdp and not args.use_deepspeed and args.num_processes == (4 if name == "ddp" else 1)


def test_the_fsdp2_config_makes_the_plugin_that_is_supported(monkeypatch):
    args = launched_with("fsdp2")
    assert args.use_fsdp and args.mixed_precision == "bf16"
    for variable, value in prepare_multi_gpu_env(args).items():
        if variable.startswith("FSDP"):
            monkeypatch.setenv(variable, value)
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2 and plugin.reshard_after_forward is True
    assert not plugin.cpu_ram_efficient_loading and not isinstance(plugin.cpu_offload, CPUOffloadPolicy)


@pytest.mark.parametrize("stage", [2, 3])
def test_the_deepspeed_configs(stage):
    args = launched_with(f"zero{stage}")
    assert args.use_deepspeed and int(args.zero_stage) == stage and args.mixed_precision == "bf16"
    assert str(args.zero3_init_flag).lower() == "false"  # every process reads the model whole, for the copy that plays
    assert int(args.gradient_accumulation_steps) == 1


def test_the_busiest_process_sets_the_count():
    launched = SimpleNamespace(device="cpu", gather=lambda own: torch.cat([own, own + 4]))
    assert processes.busiest(launched, 3) == 7
