"""Peak memory of scoring responses, with a gradient: log-probs of the response alone against those of every position.

A model as narrow as a test's with Qwen's vocabulary, so that the logits are nearly all there is. Each variant runs in a
process of its own and reports its peak resident memory, less what the model took (on CUDA: the allocator's peak).

    python bench/logp_memory.py
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import policy
from policy import Rows, token_logp

VOCABULARY, WIDTH = 151_936, 64
VARIANTS = {
    "every position": "logits and log-probs of prompt and response, the response's gathered",
    "response": "logits of the response alone, all rows at once",
    "a few rows": "and their float32 log-probs a few rows at a time (policy.token_logp)",
}


def naive(model: torch.nn.Module, rows: Rows) -> torch.Tensor:
    """Log-probs of the responses by the plain way: [B, T]."""
    ids = torch.cat([rows.prompt_ids, rows.response_ids], 1)
    logp = model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)[:, :-1]
    return logp.gather(-1, ids[:, 1:, None])[..., 0][:, -rows.response_ids.shape[1] :]


def peak(device: str) -> float:
    """Peak memory of this process so far, MiB."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def measure(variant: str, rows: int, prompt: int, response: int, device: str) -> dict:
    """MiB above the model's own, and seconds, of one forward and backward pass."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=1,
                         num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=True)  # fmt: skip
    model = LlamaForCausalLM(config).to(device)
    lengths = [torch.full((rows,), n) for n in (prompt, response)]
    ids = [torch.randint(VOCABULARY, (rows, n)) for n in (prompt, response)]
    batch = Rows(ids[0], lengths[0], ids[1], lengths[1]).to(device)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    if variant == "response":
        policy.LOGITS = rows * response * VOCABULARY
    before, began = peak(device), time.perf_counter()
    logp = naive(model, batch) if variant == "every position" else token_logp(model, batch, 1.0)[0]
    logp.mean().backward()
    return {"mib": peak(device) - before, "s": time.perf_counter() - began, "mean": logp.mean().item()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=192, help="tokens")
    parser.add_argument("--response", type=int, default=64, help="tokens")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--variant", choices=VARIANTS, help="measure this one here, and print JSON")
    args = parser.parse_args()
    shape = (args.rows, args.prompt, args.response, args.device)
    if args.variant:
        print(json.dumps(measure(args.variant, *shape)))
        return
    print(f"{args.rows} rows of {args.prompt} + {args.response} tokens, vocabulary {VOCABULARY:,}, width {WIDTH}")
    for variant, what in VARIANTS.items():
        command = [sys.executable, __file__, *sys.argv[1:], "--variant", variant]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(f"{variant:15s} {found['mib']:7.0f} MiB {found['s']:6.1f} s  log-prob {found['mean']:.4f}  {what}")


if __name__ == "__main__":
    main()
