"""From a run's config.json to the README.md of a checkpoint: what it is, how it was made, how to load it.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
                                                     [card] serves    ^^^^^

Left out: success rates. They stand in the run's eval.jsonl, with their panel and interval.
"""

import json
from pathlib import Path

TEXT = """---
base_model: {base}
library_name: {library}
tags: {tags}
---

# {env}, {method}, step {step} of {steps}

{kind} `{base}`, whose licence it follows. It needs no skill text: skills were read in training alone.

```python
{load}
tokenizer = AutoTokenizer.from_pretrained("{folder}")
```

Made by `{command}` at commit {commit}, seed {seed}; games: {games}. All settings are in
`run.json`, outcomes task by task in the run's `eval.jsonl`. Panels:

{panels}
"""
LOAD_MODEL = """from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{folder}")"""
LOAD_ADAPTER = """from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained("{base}"{gguf})
model = PeftModel.from_pretrained(base, "{folder}")"""


def card(config: dict, base: str, folder: str, step: int, adapter: bool) -> str:
    """The text of README.md for checkpoint `folder` of the run that `config` (its config.json) describes. `base`: what
    the run started from; of an adapter, what it belongs to."""
    s = config["settings"]
    file = next((path.name for path in sorted(Path(base).glob("*.gguf"))), None)
    gguf = f', gguf_file="{file}"' if file else ""
    return TEXT.format(
        base=base, folder=folder, step=step, steps=s["steps"], env=s["env"], seed=s["seed"],
        library="peft" if adapter else "transformers",
        tags=json.dumps(["reinforcement-learning", "agent", s["env"]]),
        method=f"{s['method']}{' with TVA' if s['tva'] else ''} on {s['backbone']}",
        kind="A LoRA adapter on" if adapter else "Trained from",
        load=(LOAD_ADAPTER if adapter else LOAD_MODEL).format(base=base, folder=folder, gguf=gguf),
        command=config["command"], commit=config["commit"], games=config["games"],
        panels="\n".join(f"- {split}: {panel['n']} tasks, hash {panel['hash']}"
                         for split, panel in config["panels"].items()),
    )  # fmt: skip
