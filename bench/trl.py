"""A step of GRPO here against one of TRL's `GRPOTrainer`: the ratio of their CPU times, in one run.

    pip install -r requirements-bench.txt
    python -m bench.trl --rounds 7

The same random Llama (4 layers, 256 wide, vocabulary 2048), 8 prompts of 128 tokens, 8 answers of 32 tokens to each,
one update, no KL. Single turn: as it is. Two turns: the game answers the first response with 16 tokens and the policy
speaks again. TRL plays that in its own loop (`environment_factory`) as one growing transcript; here it is two rows, as
the paper has it. A random model makes no tool calls, so TRL's parser is told that its first answer is one. `hf` is this
repository with Hugging Face's `generate`, as for every model but the small ones.
"""

import argparse
import tempfile

import numpy as np
import torch

from bench.loop import Loop
from bench.measure import compete, module, ratio, spread, turns
from envs.base import Env, Task, View
from policy import load_policy
from warmstart import CONTROL, TEMPLATE, new_policy

WORDS = [f"w{i}" for i in range(2048 - len(CONTROL) - 2)] + ["<|tool|>"]
PROMPT, ANSWER, REPLY, GROUPS, GROUP_SIZE = 128, 32, 16, 8, 8
SHAPE = {"width": 256, "layers": 4}
TEMPLATE_TOKENS = 2  # <|user|> and <|assistant|>
WITH_CALLS = TEMPLATE.replace("m['content']", "m['content'] + (m['tool_calls'] | tojson if m['tool_calls'] else '')")


def sentence(seed: int, length: int) -> str:
    """`length` random words."""
    return " ".join(np.random.default_rng(seed).choice(WORDS[:-1], length))


def worth(response: str) -> float:
    """A reward that varies within a group: the share of even words."""
    words = [int(word[1:]) % 2 for word in response.split() if word.startswith("w")]
    return 1.0 - sum(words) / max(1, len(words))


class Game:
    """Says something, hears something, `turns` times; see `Env` in envs/base.py."""

    def __init__(self, turns: int):
        self.turns = turns

    def reset(self, *, seed: int | None = None, options: dict[str, Task]) -> tuple[str, dict]:
        self.turn = 0
        return "", self._info("")

    def step(self, response: str) -> tuple[str, float, bool, bool, dict]:
        self.turn += 1
        return sentence(self.turn, REPLY), worth(response), False, self.turn == self.turns, self._info(response)

    def _info(self, action: str) -> dict:
        return {"anchor": "", "admissible": (), "action": action, "valid": True, "won": False, "score": 0.0}


class Games:
    """Eight prompts as a domain; the whole past stands in every prompt, so that both contenders read the same."""

    name, source, invalid_penalty = "bench", "random words", 0.0

    def __init__(self, turns: int, reply_tokens: int = 0):
        self.max_turns = self.history = turns

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{i}", "", sentence(i, PROMPT - TEMPLATE_TOKENS)) for i in range(GROUPS)]

    def make(self) -> Env:
        return Game(self.max_turns)

    def prompt(self, view: View, lean: bool) -> str:
        past = [f"{observation} {action}" for observation, action in view.history]
        return " ".join([view.task.goal, *past, view.observation])


def run_ours(folder: str, lean: bool, turns_each: int) -> None:
    """A contender: this repository's step."""
    policy = load_policy(folder)
    policy.lean = lean
    loop = Loop(policy, Games(turns_each), kl=0.0, mini_rows=0, groups=GROUPS, group_size=GROUP_SIZE,
                max_response=ANSWER, max_turns=turns_each)  # fmt: skip
    for told in turns():
        seconds, batch = loop.step()
        told.update(seconds, tokens=int(batch.rows.response_len.sum()))


def run_trl(folder: str, turns_each: int) -> None:
    """A contender: TRL's step, from the end of one optimizer step to the end of the next."""
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    policy = load_policy(folder)
    goals = [task.goal for task in Games(1).tasks("train")]
    sampled = []

    def reward(completions, completion_ids, **_) -> list[float]:
        sampled.append(sum(map(len, completion_ids)))
        texts = [c if isinstance(c, str) else " ".join(m["content"] for m in c) for c in completions]
        return [worth(text) for text in texts]

    class Wait(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            self.turns = turns()
            self.told = next(self.turns)

        def on_step_end(self, args, state, control, **_):
            self.told["tokens"] = sampled[-1]
            self.told = next(self.turns, None)
            control.should_training_stop = self.told is None

    extra = {}
    prompts = [policy.template_text([{"role": "user", "content": goal}]) for goal in goals]
    if turns_each > 1:
        extra = {"environment_factory": speak_again(policy.tokenizer)}
        prompts = [[{"role": "user", "content": goal}] for goal in goals]
    budget = ANSWER + (turns_each - 1) * (ANSWER + 2 * REPLY)
    rows = {"prompt": prompts * 200}
    trainer = GRPOTrainer(
        model=policy.model, processing_class=policy.tokenizer, reward_funcs=reward, callbacks=[Wait()],
        args=GRPOConfig(
            output_dir=folder, use_cpu=True, bf16=False, report_to=[], save_strategy="no", disable_tqdm=True,
            logging_strategy="no", beta=0.0, learning_rate=2e-4, gradient_checkpointing=False, shuffle_dataset=False,
            per_device_train_batch_size=GROUPS * GROUP_SIZE, num_generations=GROUP_SIZE, max_completion_length=budget,
            max_tool_calling_iterations=turns_each - 1,
        ),
        train_dataset=Dataset(InMemoryTable.from_pydict(rows), fingerprint="bench"), **extra,
    )  # fmt: skip
    trainer.generation_config.max_new_tokens = ANSWER
    trainer.train()


def speak_again(tokenizer):
    """TRL's form of `Game`. Every response of a random model is taken for a call of `reply`; the trainer's limit of
    calls ends the episode."""
    from trl.trainer import grpo_trainer

    class Environment:
        def reset(self, **_) -> None:
            self.turn = 0

        def reply(self) -> str:
            """Answers.

            Returns:
                A sentence.
            """
            self.turn += 1
            return sentence(self.turn, REPLY)

    call = {"type": "function", "function": {"name": "reply", "arguments": {}}}
    grpo_trainer.parse_response = lambda tokenizer, ids, **_: {
        "role": "assistant", "content": tokenizer.decode(ids), "tool_calls": [call]
    }  # fmt: skip
    tokenizer.response_template, tokenizer.chat_template = {}, WITH_CALLS
    return Environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="turns of every contender that count")
    parser.add_argument("--play", nargs=3, metavar=("WHO", "FOLDER", "TURNS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.play:
        who, folder, count = args.play
        run_trl(folder, int(count)) if who == "trl" else run_ours(folder, who == "ours", int(count))
        return
    torch.manual_seed(0)
    policy = new_policy(WORDS, **SHAPE)
    with tempfile.TemporaryDirectory() as folder:
        policy.model.save_pretrained(folder)
        policy.tokenizer.save_pretrained(folder)
        for count in (1, 2):
            who = ("ours", "hf", "trl")
            commands = {name: module("bench.trl", "--play", name, folder, str(count)) for name in who}
            reports = compete(commands, args.rounds)
            cpu = {name: [report["cpu"] for report in reports[name]] for name in who}
            for name in who:
                size = f"{reports[name][0]['tokens']} tokens in responses"
                print(f"{count} turn(s)  {name:5} {spread(cpu[name])} CPU-s a step, {size}", flush=True)
            for name in ("ours", "hf"):
                print(f"{count} turn(s)  {name} / trl {ratio(cpu[name], cpu['trl'])}", flush=True)


if __name__ == "__main__":
    main()
