"""From a training state to a folder and back: complete or not there at all.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
                                              [checkpoint] serves   ^^^^^

A checkpoint is an ordinary transformers (or peft) folder plus the optimizer's tensors, a small JSON state, the run's
config.json as run.json (its own name is the model's) and a model card. It is written under a temporary name, synced,
sealed by a manifest of sizes and sha256, and renamed once. Only safetensors and JSON are ever read, never pickle. Left
out: random state, since every stream is derived from (seed, step).
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from card import card

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
CHECKPOINT = re.compile(r"checkpoint-(\d+)")
LOCK = ".lock"
MANIFEST = "manifest.json"
ALWAYS = {"state.json", "optimizer.safetensors"}  # no checkpoint is whole without them


def run_folder(root: Path, name: str, resume: bool, overwrite: bool) -> tuple[Path, int]:
    """Makes, or with `resume` reopens, the folder of a run and takes it for this process: (folder, its lock's handle).
    `name` may have one level, as in table/run. Nothing in the folder is touched before the lock is held.

    Raises ValueError for a name that is unsafe or (to overwrite) no run's, FileExistsError for a folder that exists,
    BlockingIOError for one that another process holds.
    """
    parts = name.split("/")
    if len(parts) > 2 or not all(NAME.fullmatch(part) for part in parts):
        raise ValueError(f"--run {name}: use letters, digits, '.', '_' and '-', as NAME or TABLE/NAME")
    folder = root / name
    if not folder.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"--run {name}: {folder} is a link that leads out of {root}")
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=not new)
    handle = lock(folder)
    try:
        if not new and overwrite:
            _empty(folder)
        elif not new and not resume:
            raise FileExistsError(f"--run {name}: {folder} exists; give --resume to go on, --overwrite or another name")
        for left in folder.glob(".saving-*"):  # by a save that was killed
            shutil.rmtree(left)
    except BaseException:
        os.close(handle)
        raise
    return folder, handle


def _empty(folder: Path) -> None:
    """Deletes what a run left, its checkpoints first, so that what a kill leaves behind cannot be resumed."""
    entries = sorted(path for path in folder.iterdir() if path.name != LOCK)
    if entries and not (folder / "config.json").is_file():
        raise ValueError(f"{folder} holds no config.json, so it is no run: not deleted; remove it by hand")
    for path in entries:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def lock(folder: Path) -> int:
    """Takes the folder for this process until it ends. Raises BlockingIOError where another one holds it."""
    handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise BlockingIOError(f"{folder}: another process is running here") from error
    return handle


def save(folder: Path, step: int, policy, optimizer: torch.optim.Optimizer | None, state: dict, ema=None) -> Path:
    """Writes `folder`/checkpoint-<step>, with the weights of an ema teacher where there is one. Without an optimizer
    it can be loaded, but not resumed from.

    Whatever fails, what was there before stays: FloatingPointError where a tensor is not finite, OSError where the disk
    is full or gone.
    """
    final, temporary = folder / f"checkpoint-{step}", folder / f".saving-{step}"
    moments = {} if optimizer is None else _moments(policy.model, optimizer)
    for name, tensor in [*policy.model.named_parameters(), *moments.items()]:
        if not torch.isfinite(tensor).all():
            raise FloatingPointError(f"step {step}: {name} is not finite; not saved, earlier checkpoints are untouched")
    check_room(folder, policy.model, ema)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        policy.model.save_pretrained(temporary, safe_serialization=True)
        policy.tokenizer.save_pretrained(temporary)
        if optimizer is not None:
            save_file(moments, temporary / "optimizer.safetensors")
        _describe(folder / "config.json", temporary, final.name, step)
        if ema is not None:
            ema.save_pretrained(temporary / "ema", safe_serialization=True)
        (temporary / "state.json").write_text(json.dumps({"step": step, **state}, indent=1))
        files = sorted(path for path in temporary.rglob("*") if path.is_file())
        manifest = {path.relative_to(temporary).as_posix(): [path.stat().st_size, _sha256(path)] for path in files}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1))
        for path in [*files, temporary / MANIFEST, temporary]:
            _sync(path)
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
        _sync(folder)
    except Exception as error:  # on a full disk safetensors and tokenizers raise kinds of their own
        shutil.rmtree(temporary, ignore_errors=True)
        raise OSError(f"could not write {final} ({error}); earlier checkpoints are untouched") from error
    return final


def check_room(folder: Path, model: torch.nn.Module, ema=None) -> None:
    """Raises OSError where the disk has no room for a checkpoint: trained weights, two moments, an ema teacher's."""
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    need, free = trained * (3 + (ema is not None)) + 2**20, shutil.disk_usage(folder).free
    if need > free:
        raise OSError(
            errno.ENOSPC,
            f"{folder}: a checkpoint takes {need / 2**20:.0f} MiB, {free / 2**20:.0f} are free; make room and go on "
            "with --resume, earlier checkpoints are untouched",
        )


def _describe(config: Path, temporary: Path, name: str, step: int) -> None:
    """Puts the run's settings and a model card into the checkpoint."""
    if config.is_file():
        shutil.copy(config, temporary / "run.json")
        run, adapter = json.loads(config.read_text()), temporary / "adapter_config.json"
        base = run["settings"]["model"]
        if adapter.is_file():
            base = json.loads(adapter.read_text())["base_model_name_or_path"]
        text = card(run, base, name, step, adapter.is_file())
        (temporary / "README.md").write_text(text, encoding="utf-8")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fault(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, in words; None where it is whole."""
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text())
        if missing := sorted(ALWAYS - set(manifest)):
            return f"its {MANIFEST} does not name {', '.join(missing)}"
        for name, (size, digest) in manifest.items():
            path = checkpoint / name
            if not path.resolve().is_relative_to(checkpoint.resolve()):
                return f"its manifest names {name}, outside the folder"
            if not path.is_file() or path.stat().st_size != size or _sha256(path) != digest:
                return f"{name} is missing or changed"
    except FileNotFoundError:
        return f"it has no {MANIFEST}: it was not finished"
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        return f"its {MANIFEST} cannot be read ({error})"
    return None


def _by_step(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints of a run, whole or not, the newest first. Folders of other names are none."""
    found = [(CHECKPOINT.fullmatch(path.name), path) for path in folder.iterdir()]
    return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)


def newest(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest whole checkpoint of a run, and a line about every newer one that was passed over."""
    complaints = []
    for _, checkpoint in _by_step(folder):
        problem = fault(checkpoint)
        if problem is None:
            return checkpoint, complaints
        complaints.append(f"{checkpoint} is passed over: {problem}")
    return None, complaints


def prune(folder: Path, keep: int, saved: int) -> None:
    """Deletes all but the `keep` newest checkpoints up to step `saved`. Later ones were passed over as damaged when the
    run was resumed: they count for nothing, and are written anew when their step comes."""
    for _, checkpoint in [(step, path) for step, path in _by_step(folder) if step <= saved][max(1, keep) :]:
        shutil.rmtree(checkpoint)


def _moments(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimizer's tensors under the names of their parameters."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}|{key}": value.contiguous()
        for parameter, values in optimizer.state.items()
        for key, value in values.items()
    }


def load_weights(folder: Path, model: torch.nn.Module) -> None:
    """Gives `model` the weights that `save_pretrained` wrote into `folder`: all of them, or its adapter's."""
    if (folder / "adapter_model.safetensors").is_file():
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model, load_file(folder / "adapter_model.safetensors"))
    else:
        missing, unknown = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
        tied = set(getattr(model, "_tied_weights_keys", None) or ())
        if set(missing) - tied or unknown:
            raise ValueError(f"{folder}/model.safetensors does not fit: missing {missing}, unknown {unknown}")


def restore(checkpoint: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    """Gives the optimizer its tensors back (the weights come with `load_policy`) and returns the JSON state.

    Raises ValueError where a parameter's tensors are missing.
    """
    tensors = load_file(checkpoint / "optimizer.safetensors")
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and tensors:
            keys = ("step", "exp_avg", "exp_avg_sq")
            if missing := [key for key in keys if f"{name}|{key}" not in tensors]:
                raise ValueError(f"{checkpoint}/optimizer.safetensors lacks {missing} of {name}")
            optimizer.state[parameter] = {key: tensors[f"{name}|{key}"] for key in keys}
    return json.loads((checkpoint / "state.json").read_text())
