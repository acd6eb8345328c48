"""From prompts to responses by vLLM: the same call as rollout.generate, many times its speed on a GPU.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
            ^^^^^^^ [vllm_engine] may sample for it

vLLM lives in the training process, on the same GPU, takes ids and gives ids and log-probs; after every update it gets
the new weights, or the new adapter. Its arithmetic is not that of training: the log's sampler/logp_diff says how far
the two are apart, and the ratio of the loss never uses the sampler's log-probs. Needs vllm 0.10.2 or newer
(requirements-vllm.txt). Left out: several GPUs for one copy of the weights.
"""

import os
import tempfile

import numpy as np

from policy import Policy

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM allocates room for
CONTEXT = 8192  # tokens of prompt and response: room in its cache


class Vllm:
    """Samples for one policy. `memory`: the share of the GPU that vLLM may take, its copy of the weights included."""

    def __init__(self, policy: Policy, memory: float):
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # same process: weights are handed over, not sent
        import vllm
        from vllm.lora.request import LoRARequest

        self.vllm, self.lora_request = vllm, LoRARequest
        model = policy.model
        adapter = getattr(model, "peft_config", None)
        rank = max(config.r for config in adapter.values()) if adapter else 0
        lora = {"enable_lora": True, "max_lora_rank": min(r for r in LORA_RANKS if r >= rank)} if adapter else {}
        parallel = {"distributed_executor_backend": "external_launcher"} if "WORLD_SIZE" in os.environ else {}
        self.context = min(CONTEXT, model.config.max_position_embeddings)
        self.llm = vllm.LLM(
            model=model.config.name_or_path,
            dtype=str(model.dtype).removeprefix("torch."),
            max_model_len=self.context,
            gpu_memory_utilization=memory,
            generation_config="vllm",  # not the model's own: a top-k of 20 would not be the policy that is trained
            logprobs_mode="processed_logprobs",  # at the sampling temperature
            **lora,
            **parallel,
        )
        self.version, self.adapter, self.folder = 0, None, tempfile.TemporaryDirectory()
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Takes the policy's weights, or its adapter under a new number: vLLM keeps what it has read of the old one."""
        self.version += 1
        if hasattr(policy.model, "peft_config"):
            policy.model.save_pretrained(self.folder.name)
            self.adapter = self.lora_request(f"step-{self.version}", self.version, self.folder.name)
        else:
            weights = [(name, value.detach()) for name, value in policy.model.named_parameters()]
            self.llm.apply_model(lambda model: model.load_weights(weights))
        self.llm.reset_prefix_cache()

    def __call__(
        self, policy: Policy, prompts: list[list[int]], draws: np.ndarray, temperature: float
    ) -> list[tuple[list[int], list[float]]]:
        """One response to each prompt, as `rollout.generate`. An episode's first uniform number seeds its response, so
        that vLLM's batches do not mix the episodes' streams.

        Raises ValueError where a prompt and a full response exceed the room in vLLM's cache.
        """
        width = draws.shape[1]
        if (longest := max(len(ids) for ids in prompts)) + width > self.context:
            raise ValueError(f"a prompt of {longest} tokens and --max_response {width} exceed vLLM's {self.context}")
        params = [
            self.vllm.SamplingParams(
                temperature=temperature, top_p=1.0, top_k=0, min_p=0.0, max_tokens=width, seed=int(draw * 2**31),
                logprobs=0, stop_token_ids=policy.end_ids, detokenize=False,
            )
            for draw in draws[:, 0]
        ]  # fmt: skip
        texts = [{"prompt_token_ids": ids} for ids in prompts]
        out = self.llm.generate(texts, params, use_tqdm=False, lora_request=self.adapter)
        return [self._response(request.outputs[0]) for request in out]

    @staticmethod
    def _response(output) -> tuple[list[int], list[float]]:
        ids = list(output.token_ids)
        return ids, [step[token].logprob for token, step in zip(ids, output.logprobs, strict=True)]
