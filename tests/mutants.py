"""Plant one small fault at a time in the formula files and see which test notices it.

    python tests/mutants.py [shaping tva grpo gigpo sdar rlsd]

Each fault is made in a temporary copy of the formula files and their tests; only the tests of the faulty file run, up
to the first failure. Prints a Markdown table (fault, test that caught it) and exits with 1 where fewer than 95 % are
caught. A line that no fault in it can make fail is untested or should be deleted. Takes about five minutes; not
collected by pytest. Left out: changes that cannot be observed, such as `adv < 0` to `adv <= 0` in `surrogate`.
"""

import contextlib
import multiprocessing
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
import torch  # noqa: F401  once here, not in every fork

ROOT = Path(__file__).parent.parent
LIMIT_S = 60

# file: (the text as it stands, of which the last occurrence is changed; the text with the fault)
FAULTS = {
    "shaping": [
        ('if scope == "step"', 'if scope != "step"'),
        ('if scope == "group"', 'if scope != "group"'),
        ("value.where(mask, 0.0).sum(1)", "value.sum(1)"),
        ("mask.sum(1).to(value.dtype)", "mask.any(1).to(value.dtype)"),
        ("count.clamp(min=1))[pool]", "count.clamp(min=2))[pool]"),
        (".square(), mask, pool)", ".abs(), mask, pool)"),
        ("count - int(unbiased)", "count + int(unbiased)"),
        ("int(unbiased)).clamp(min=1)", "int(unbiased)).clamp(min=2)"),
        ("not in CENTRES or scale", "not in CENTRES and scale"),
        ("score.double(), mask.bool()", "score, mask.bool()"),
        ("score.double(), mask.bool()", "score.double(), mask"),
        ('if centre != "none"', 'if centre == "none"'),
        ("score = score - _mean", "score = score + _mean"),
        ("_pool(centre, group)", "_pool(scale, group)"),
        ('if scale != "none"', 'if scale == "none"'),
        ("unbiased=False).sqrt()", "unbiased=True).sqrt()"),
        ("unbiased=False).sqrt()", "unbiased=False)"),
        ("std > 1e-6", "std > 1e-8"),
        ("score / (std + 1e-8)", "score / (std + 1e-2)"),
        ("return score.where(mask, 0.0).float()", "return score.float()"),
        ("term.double(), mask.bool()", "term.double(), mask"),
        ("(value - _mean(value, mask, pool)) /", "(value + _mean(value, mask, pool)) /"),
        ("unbiased=True) + 1e-8", "unbiased=False) + 1e-8"),
        ("unbiased=True) + 1e-8", "unbiased=True) + 1e-6"),
        ("+ 1e-8).sqrt()", "+ 1e-8)"),
        ("return z.where(mask, 0.0).float()", "return z.float()"),
        ("return gate * whiten(q_hat", "return whiten(q_hat"),
        ("return whiten(gate * q_hat", "return whiten(q_hat"),
        ('"raw":\n        return gate * q_hat', '"raw":\n        return q_hat'),
        ("torch.zeros_like(q_hat)", "torch.ones_like(q_hat)"),
        ("score + eta *", "score - eta *"),
        ("eta * (gate * q_hat).sum(1)", "eta * (gate * q_hat).mean(1)"),
        ("eta * (gate * q_hat)", "eta * (q_hat)"),
        ("term.clamp(-limit, limit)", "term.clamp(0, limit)"),
        ("by_group.median()", "by_group.mean()"),
        ("by_group.median()", "spread.median()"),
        (".clamp(min=1e-6)).clamp", ".clamp(min=1.0)).clamp"),
        (".clamp(max=1.0)", ".clamp(max=2.0)"),
        ("term.clamp(-bound, bound)", "term.clamp(-bound)"),
        ("6) < step", "6) <= step"),
        ("step <= round", "step < round"),
        ("round(start * steps, 6)", "(start * steps)"),
        ("round(stop * steps, 6)", "(stop * steps)"),
    ],
    "tva": [
        ("mask = mask.bool()\n    total", "total"),
        ("logp.double().where(mask, 0.0)", "logp.double()"),
        ("_sums(mask.sum(1), unit)", "_sums(mask.any(1), unit)"),
        ("tokens.clamp(min=1)", "tokens.clamp(min=2)"),
        ("(1 / rows)", "(1 * rows)"),
        ("_sums(torch.ones_like(unit), unit)", "_sums(mask.sum(1), unit)"),
        ('if split == "median"', 'if split != "median"'),
        ("torch.sigmoid(c - (w * c)", "torch.sigmoid(c + (w * c)"),
        ("(w * c).sum() / w.sum()", "c.mean()"),
        ("torch.sigmoid(c -", "torch.tanh(c -"),
        ("c - _sums(w * c, group)", "c - _sums(c, group)"),
        ("w * off.square()", "w * off.abs()"),
        ("w * off.square()", "off.square()"),
        ("_sums(w, group)).sqrt()", "_sums(w, group))"),
        ("off / (std + 1e-8)", "off / (std + 1e-1)"),
        ("c, w = conf.double(), weight.double()", "c, w = conf, weight"),
        ("conf < conf[:, None], conf > conf", "conf > conf[:, None], conf < conf"),
        ("(weight * side)", "(side)"),
        (".round(decimals=4)", ""),
        ("weight.double() * (1 - align)", "weight.double() * (1 + align)"),
        ("weight.double() * align", "align.double()"),
        ("plus * ret, group) / w_plus", "plus * ret, group) / w_minus"),
        ("mu_plus - mu_minus).where", "mu_plus + mu_minus).where"),
        ("(mu_plus - mu_minus)", "(mu_minus - mu_plus)"),
        ("> 1.5", "> 0.5"),
        ("> 1.5", "> 2.5"),
        ("(w_plus > 1e-6)", "(w_plus > -1)"),
        ("(w_minus > 1e-6)", "(w_minus > -1)"),
        ("(w_minus > 1e-6)", "(w_minus > 1e-2)"),
        ("tau: float = 2.0, norm", "tau: float = 1.0, norm"),
        ("torch.sigmoid(tau * tva)", "torch.sigmoid(tau + tva)"),
        ("torch.sigmoid(tau * tva).detach()", "torch.sigmoid(tau * tva)"),
        ("d, w = tva.double(), weight.double()", "d, w = tva, weight"),
        ("(w * d).sum() / w.sum()", "d.mean()"),
        ("(d - mean)", "(d + mean)"),
        ("(w * (d - mean).square())", "((d - mean).square())"),
        ("(d / std)", "(d - mean) / std"),
        ("if std > 1e-6", "if std > 1e-8"),
        ("mask = mask.bool()\n    gap", "gap"),
        ("teacher_logp - ref_logp", "teacher_logp + ref_logp"),
        ("mask.sum().clamp(min=1)", "mask.sum().clamp(min=4)"),
        ("(gap - gap.sum() / count)", "(gap)"),
        ("(gap - gap.sum() / count).where(mask, 0.0)", "(gap - gap.sum() / count)"),
        ("gap / (std + 1e-8)", "gap / (std + 1e-1)"),
        (".detach().where(mask, 0.0)", ".detach()"),
        (".detach().where(mask, 0.0)", ".where(mask, 0.0)"),
        ("dict(values or {})", "values or {}"),
        ("self.values.get(task, new)", "self.values.get(task, 0.0)"),
        ("(1 - self.decay) * new", "self.decay * new"),
    ],
    "grpo": [
        ("_sums(reward, pool)[pool]", "reward"),
        ("- penalty *", "+ penalty *"),
        ("valid.logical_not()", "valid"),
        ("valid.logical_not()", "(~valid)"),
        ("floor: float = 1e-6", "floor: float = 1e-9"),
        ("floor: float = 1e-6", "floor: float = 1e-4"),
        ('if unit == "episode"', 'if unit != "episode"'),
        ("weight = 1 / torch.bincount", "weight = 1 * torch.bincount"),
        ("value = _sums(weight * value, member)[member]", "value = value"),
        ("_sums(weight * value, pool) / count", "_sums(value, pool) / count"),
        ("weight * (value - mean).square()", "(value - mean).square()"),
        ("(value - mean).square()", "(value - mean).abs()"),
        ("(count - 1)", "(count)"),
        ("include_self=False", "include_self=True"),
        ("variance.sqrt()", "variance"),
        ("high - low > floor", "high + low > floor"),
        ("floor * (1 + torch", "floor * (0 + torch"),
        ("torch.maximum(high, -low)", "high"),
        ("torch.maximum(high, -low)", "low.neg()"),
        ("(score - mean)", "(mean - score)"),
        ("std > 0,", "std >= 0,"),
        ("(std + 1e-6)", "(std + 1e-4)"),
        ("by_std: bool = True", "by_std: bool = False"),
        ("if by_std else", "if not by_std else"),
        ("clip: float = 0.2, dual", "clip: float = 0.3, dual"),
        ("dual_clip: float = 3.0", "dual_clip: float = 5.0"),
        ("(logp - old_logp)", "(old_logp - logp)"),
        ("(logp - old_logp).clamp(max=20)", "(logp - old_logp)"),
        ("(logp - old_logp).clamp(max=20)", "(logp - old_logp).clamp(max=1)"),
        ("-torch.minimum(ratio", "-torch.maximum(ratio"),
        ("1 - clip, 1 + clip) * adv)\n    return", "1 + clip, 1 + clip) * adv)\n    return"),
        ("1 - clip, 1 + clip) * adv)\n    return", "1 - clip, 1 - clip) * adv)\n    return"),
        ("torch.where(adv < 0", "torch.where(adv > 0"),
        ("torch.minimum(loss", "torch.maximum(loss"),
        ("-dual_clip * adv)", "dual_clip * adv)"),
        ("(ref_logp - logp)", "(logp - ref_logp)"),
        ("(ref_logp - logp).clamp(max=20)", "(ref_logp - logp)"),
        ("d.expm1() - d", "d.expm1() + d"),
        ("d.expm1() - d", "d.exp() - 1 - d"),
        (".clamp(max=10)", ".clamp(max=100)"),
    ],
    "gigpo": [
        ("gamma: float = 0.95", "gamma: float = 0.9"),
        ("episode == e", "episode >= e"),
        ("turn[rows].argsort(descending=True)", "turn[rows].argsort()"),
        ("rows[turn[rows].argsort(descending=True)]", "rows.flip(0)"),
        ("reward[row] + gamma * following", "reward[row] + gamma + following"),
        ("reward[row] + gamma * following", "gamma * (reward[row] + following)"),
        ("0 < similarity", "0 <= similarity"),
        ("similarity <= 1", "similarity < 1"),
        ("similarity <= 1", "similarity <= 2"),
        ("strict=True", "strict=False"),
        ("name = (g, text)", "name = (0, text)"),
        ("if similarity < 1 and", "if similarity > 1 and"),
        ("n[0] == g and ", ""),
        (">= similarity)", "> similarity)"),
        ("len(names))", "len(index))"),
        ("dtype=torch.long, ", ""),
        ("by_std: bool = False", "by_std: bool = True"),
        ("row), by_std)", "row), not by_std)"),
        ("anchor_group, row)", "row, row)"),
    ],
    "sdar": [
        ("torch.sigmoid(beta * (teacher_logp - logp))", "torch.sigmoid(beta + (teacher_logp - logp))"),
        ("torch.sigmoid(beta * (teacher_logp - logp))", "torch.sigmoid(beta * (logp - teacher_logp))"),
        (".detach()\n", "\n"),
        ("beta) * (teacher_logp - logp)", "beta) * (logp - teacher_logp)"),
        ("return distil_gate(logp, teacher_logp, beta) *", "return distil_gate(teacher_logp, logp, beta) *"),
        ("x = logp - teacher_logp", "x = teacher_logp - logp"),
        ("(logp - old_logp)", "(old_logp - logp)"),
        ("(logp - old_logp).clamp(max=10)", "(logp - old_logp).detach().clamp(max=10)"),
        (".clamp(max=10).exp()", ".clamp(max=20).exp()"),
        (".clamp(max=20).expm1()", ".clamp(max=10).expm1()"),
        (".clamp(max=20).expm1()", ".expm1()"),
        (".expm1() + x", ".expm1() - x"),
        (".expm1() + x", ".exp() - 1 + x"),
    ],
    "rlsd": [
        ("start: float = 0.5", "start: float = 0.6"),
        ("steps: int = 100", "steps: int = 101"),
        ("max(0.0,", "max(0.1,"),
        ("(step - 1) / steps", "step / steps"),
        ("start * max", "start + max"),
        ("clip: float = 0.2", "clip: float = 0.3"),
        ("adv.sign() *", "adv *"),
        ("adv.sign() *", "adv.sign().abs() *"),
        ("(teacher_logp - old_logp)", "(old_logp - teacher_logp)"),
        (".exp().clamp(1 - clip", ".exp().clamp(1 + clip"),
        ("1 + clip)\n", "1 - clip)\n"),
        ("(1 - mix) + mix", "(1 + mix) + mix"),
        ("mix * ratio", "ratio"),
        ("return adv * ", "return adv.abs() * "),
    ],
}


def main(names: list[str]) -> int:
    sys.dont_write_bytecode = True  # a stale cache would hide a fault
    caught = total = 0
    print("| file | stands | fault | caught by |\n|---|---|---|---|")
    for name in names:
        if failing := first_failure(name, "import", "import"):
            raise ValueError(f"tests/test_{name}.py: {failing} fails without a fault")
        for old, new in FAULTS[name]:
            killer = first_failure(name, old, new)
            caught, total = caught + bool(killer), total + 1
            print(f"| {name} | {shown(old)} | {shown(new)} | {killer or '**survived**'} |", flush=True)
    print(f"\n{caught} of {total} caught ({caught / total:.1%})")
    return int(caught < 0.95 * total)


def shown(code: str) -> str:
    text = " ".join(code.split()).replace("|", "\\|")
    return f"`{text}`" if text else "(deleted)"


def first_failure(name: str, old: str, new: str) -> str:
    """The test that fails first with `old` replaced by `new` in the file of this name; empty where all pass."""
    before, found, after = (ROOT / f"{name}.py").read_text().rpartition(old)
    if not found:
        raise ValueError(f"{name}.py has no {old!r}: write the fault anew in tests/mutants.py")
    with tempfile.TemporaryDirectory() as folder:
        for file in FAULTS:
            shutil.copy(ROOT / f"{file}.py", folder)
        (Path(folder) / f"{name}.py").write_text(before + new + after)
        (Path(folder) / "tests").mkdir()
        for file in ("__init__.py", "conftest.py", "ragged.py", f"test_{name}.py"):
            shutil.copy(ROOT / "tests" / file, Path(folder) / "tests")
        fork = multiprocessing.get_context("fork")
        result = fork.Queue()
        child = fork.Process(target=run_tests, args=(folder, name, result))
        child.start()
        child.join(LIMIT_S)
        if child.is_alive():
            child.kill()
            return f"no end within {LIMIT_S} s"
        return result.get(timeout=1)


class FirstFailure:
    """A pytest plugin that keeps the name of the first test, or of the file, that did not pass."""

    name = ""

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.name:
            self.name = report.nodeid.split("::", 1)[1]

    def pytest_collectreport(self, report):
        if report.failed:
            self.name = "the import"


def run_tests(folder: str, name: str, result) -> None:
    os.chdir(folder)
    sys.path.insert(0, folder)
    plugin = FirstFailure()
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
        pytest.main(["-x", "-q", "-p", "no:cacheprovider", f"tests/test_{name}.py"], plugins=[plugin])
    result.put(plugin.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(FAULTS)))
