"""From a view to the user message of an instruct model: verl-agent's parts, word for word.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: View -> [prompt] -> policy          lean is the form of the same parts for a small policy

Role, task, steps taken and the last (observation, action) pairs, the current step and observation, the admissible
actions, what to answer. The words are protocol: another prompt is another benchmark. Source: webshop.md 1.7.
"""

from envs.base import View

LONGEST = 13_000  # characters; a longer prompt is written without its history

_ROLE = "\nYou are an expert autonomous agent operating in the WebShop e‑commerce environment."
_ACTIONS = "\nYour admissible actions of the current situation are: \n[\n{actions}\n].\n"
_ASK = """
Now it's your turn to take one action for the current step.
You should first reason step-by-step about the current situation, then think carefully which admissible action best \
advances the shopping goal. This reasoning process MUST be enclosed within <think> </think> tags. \

Once you've finished your reasoning, you should choose an admissible action for current step and present it within \
<action> </action> tags.
"""


def instruct_prompt(view: View) -> str:
    """The user message. Beyond `LONGEST` characters the history goes, and the rest is written as on the first step."""
    actions = _ACTIONS.format(actions="\n".join(f"'{action}'," for action in view.admissible))
    if view.history:
        first = view.turn - len(view.history) + 1
        history = "\n".join(
            f"[Observation {number}: '{observation}', Action {number}: '{action}']"
            for number, (observation, action) in enumerate(view.history, start=first)
        )
        text = (
            f"{_ROLE}\nYour task is to: {view.task.goal}.\n"
            f"Prior to this step, you have already taken {view.turn} step(s). Below are the most recent "
            f"{len(view.history)} observations and the corresponding actions you took: {history}\n"
            f"You are now at step {view.turn + 1} and your current observation is: {view.observation}."
            f"{actions}{_ASK}"
        )
        if len(text) <= LONGEST:
            return text
    return (
        f"{_ROLE} \nYour task is to: {view.task.goal}.\nYour current observation is: {view.observation}.{actions}{_ASK}"
    )
