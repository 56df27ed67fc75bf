"""What a model is tested on without retraining: its own tasks, and tasks that differ from them in one way."""

from collections.abc import Mapping
from dataclasses import dataclass

from valuelens.models.icrl import LinearAttention, TaskConfig, ValueLearner

OWN = "own tasks"
"""The reference: the distribution that the model was trained on."""

_CHAINS = ("boyan", "loop", "garnet")
_CELLS = 16
_STATES, _LENGTHS, _SCALES = (0.5, 2, 4), (0.5, 2, 10), (0.1, 10)
_FEWEST = 3
"""States of the smallest chain."""

Skipped = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shift:
    """Another task distribution.

    Attributes:
        name: Such as `loop`, `states x 2`, `context x 10`.
        task: What is drawn.
        reward_scale: Every reward, and so every true value, times this.
    """

    name: str
    task: TaskConfig
    reward_scale: float = 1.0


def shifts(task: TaskConfig, model: ValueLearner) -> tuple[list[Shift], list[Skipped]]:
    """The shifts of a task distribution that a model can be asked about, and why the others cannot.

    One thing changes at a time: the environment (the chain keeps its number of states; cart-pole has 16 cells), the
    states S x 0.5, 2, 4, the context length n x 0.5, 2, 10, the reward scale x 0.1, 10, and gamma of linear
    attention, which finds it in its prompt (it is built into the others, so there another gamma is no question). Our
    definition.

    Args:
        task: That the model was trained on.
        model: Any in-context value learner.
    """
    found, skipped = [Shift(name=OWN, task=task)], []
    for part, left_out in (_environments(task), _states(task)):
        found += part
        skipped += left_out
    if isinstance(model, LinearAttention):
        gamma = 0.5 if task.gamma >= 0.7 else 0.9
        found.append(Shift(name=f"gamma {gamma:g}", task=task.model_copy(update={"gamma": gamma})))
    lengths = {f"context x {factor:g}": max(1, round(task.context_length * factor)) for factor in _LENGTHS}
    found += [
        Shift(name=name, task=task.model_copy(update={"context_length": n})) for name, n in lengths.items()
    ]
    found += [Shift(name=f"rewards x {scale:g}", task=task, reward_scale=scale) for scale in _SCALES]
    return found, skipped


def _environments(task: TaskConfig) -> tuple[list[Shift], list[Skipped]]:
    if task.env not in (*_CHAINS, "cartpole"):
        return [], [_left_out("other environments", "the tasks come from a file, which brings its own chain")]
    if task.num_states < _FEWEST:
        return [], [_left_out("other environments", f"chains need {_FEWEST} states")]
    found = [Shift(name=env, task=task.model_copy(update={"env": env})) for env in _CHAINS if env != task.env]
    if task.env == "cartpole":
        return found, []
    if task.features == "one-hot" and task.num_states != _CELLS:
        why = f"one-hot features have as many entries as states, and cart-pole has {_CELLS} cells"
        return found, [_left_out("cart-pole", why)]
    cells = task.model_copy(update={"env": "cartpole", "num_states": _CELLS})
    return [*found, Shift(name="cart-pole", task=cells)], []


def _states(task: TaskConfig) -> tuple[list[Shift], list[Skipped]]:
    what = "other numbers of states"
    if task.features == "one-hot":
        return [], [_left_out(what, "one-hot features have as many entries as states")]
    if task.env not in _CHAINS:
        return [], [_left_out(what, "the environment has its own number of states")]
    sizes = {
        f"states x {factor:g}": size
        for factor in _STATES
        if (size := round(task.num_states * factor)) >= _FEWEST
    }
    return [Shift(name=name, task=task.model_copy(update={"num_states": S})) for name, S in sizes.items()], []


def _left_out(what: str, why: str) -> Skipped:
    return {"what": f"generalisation to {what}", "why": why}
