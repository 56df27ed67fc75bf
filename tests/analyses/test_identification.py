"""Networks whose algorithm is known are named, with their class, and near misses are not."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from valuelens.analyses import ALGORITHMS, Identification, identification
from valuelens.models import InputError
from valuelens.models.icrl import (
    Context,
    LinearAttention,
    ModelConfig,
    Slot,
    TaskConfig,
    build,
    context_of,
    network_of,
    task_sampler,
    theta_star,
)
from valuelens.probe import RULES, RuleFit, UpdateData

TASK = TaskConfig(num_states=6, context_length=16, feature_dim=3)
A = torch.tensor([[4.0, 0.5, 0.0], [0.0, 3.0, 0.5], [-0.4, 0.0, 3.5]], dtype=torch.float64)
TD = [0.8, 0.4, -0.8]
MADE: dict[str, tuple[list[float], list[Tensor | float]]] = {
    "weighted softmax TD": (TD, [A]),
    "linear TD": (TD, []),
    "tabular TD": (TD, []),
    "TD(lambda)": (TD, [0.35]),
    "residual gradient": ([0.8, 0.8], [0.5]),
    "LSTD": ([0.8, -0.8], [0.5, -4.0]),
    "Monte-Carlo": ([0.8, -0.8], [0.5]),
    "Monte-Carlo, solved": ([0.8, -0.8], [0.5, -3.0]),
    "kernel regression": ([0.8, -0.8], [A, 0.5]),
    "kernel reward averaging": ([0.8, -0.8], [A]),
    "reward averaging": ([1.6, -0.8], []),
    "identity": ([], []),
}


class Rules(nn.Module):
    """Layers that do what rules say; a module whose outputs are the values of the columns."""

    def __init__(self, fits: list[RuleFit]) -> None:
        super().__init__()
        self.fits, self.after = fits, nn.ModuleList(nn.Identity() for _ in fits)

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        v = torch.zeros_like(x[..., 0])
        for fit, after in zip(self.fits, self.after, strict=True):
            data = UpdateData(features=x, rewards=r, values=v, update=v, gamma=0.5)
            v = after(v + fit.predicted(data))
        return v[:, -1:]


@dataclass
class RuleNetwork:
    """An adapter of a user's own: no extra queries, no target slots."""

    module: Rules

    @property
    def slots(self) -> list[Slot]:
        return [Slot(hook=f"after.{layer}", layer=layer) for layer in range(len(self.module.fits))]

    def inputs(self, context: Context, queries: Tensor) -> tuple[Any, ...]:
        return context.features, context.rewards

    def values(self, output: Any) -> Tensor:
        return torch.as_tensor(output)


def layer(name: str, w: list[float] | None = None) -> RuleFit:
    weights, shape = MADE[name]
    parts = [torch.as_tensor(each, dtype=torch.float64).flatten() for each in shape]
    flat = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
    return RuleFit(rule=RULES[name], weights=torch.tensor(w or weights, dtype=torch.float64), shape=flat)


def contexts(seed: int = 100, num_tasks: int = 48, task: TaskConfig = TASK) -> Context:
    generator = torch.Generator().manual_seed(seed)
    mrp, states = task_sampler(task, generator).sample(
        num_tasks, task.context_length, generator, torch.float64
    )
    return context_of(mrp, states)


def identified(*fits: RuleFit, context: Context | None = None) -> Identification:
    return identification(RuleNetwork(Rules(list(fits))), context or contexts())


@pytest.mark.parametrize("name", MADE)
def test_every_rule_is_named_from_what_its_layers_do(name: str) -> None:
    found = identified(*[layer(name)] * 2)
    assert found.algorithm == RULES[name].name
    assert found.algorithm in found.members
    if name != "identity":
        assert float(found.errors[ALGORITHMS.index(found.algorithm)].nan_to_num(0).max()) < 1e-6
        assert found.margin is not None
        assert found.margin > 0
        assert found.interval is not None
        assert found.interval[0] > 0


@pytest.mark.parametrize("w", [[-0.8, 0.4, -0.8], [0.8, -0.4, -0.8], [0.8, 0.4, 0.4]])
def test_the_right_kernel_with_one_wrong_sign_is_none_of_these(w: list[float]) -> None:
    found = identified(*[layer("weighted softmax TD", w)] * 2)
    assert (found.algorithm, found.members) == ("none of these", ())
    assert found.effective_discount is None


def test_another_discount_shows_in_the_interval_alone() -> None:
    found = identified(*[layer("weighted softmax TD", [0.8, 0.56, -0.8])] * 3)
    assert found.algorithm == "weighted softmax TD"
    assert found.effective_discount == pytest.approx(0.7, abs=1e-6)
    assert found.discount_interval is not None
    assert 0.5 < found.discount_interval[0] < 0.7 < found.discount_interval[1]


def test_the_discount_of_layers_with_own_steps_is_pooled() -> None:
    fits = [layer("weighted softmax TD", [a, 0.45 * a, -a]) for a in (0.9, 0.5, 0.7)]
    assert identified(*fits).effective_discount == pytest.approx(0.45, abs=1e-6)


class Blurred(Rules):
    """Layers whose values are read with an error of some 1e-10, as a decoder reads them; they compute without it."""

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        v = torch.zeros_like(x[..., 0])
        for fit, after in zip(self.fits, self.after, strict=True):
            v = v + fit.predicted(UpdateData(features=x, rewards=r, values=v, update=v, gamma=0.5))
            after(v + 1e-10 * torch.randn(v.shape, generator=generator, dtype=v.dtype))
        return v[:, -1:]


@pytest.mark.parametrize("depth", [2, 3])
def test_a_layer_that_starts_from_nearly_nothing_says_nothing_of_the_discount(depth: int) -> None:
    """Its two weights are noise over noise; one other layer is enough, and gives an interval of its own."""
    steps = [layer("weighted softmax TD", [0.8, 0.36, -0.8])] * depth
    found = identification(RuleNetwork(Blurred([layer("identity"), *steps])), contexts(num_tasks=64))
    assert found.algorithm == "weighted softmax TD"
    assert found.effective_discount == pytest.approx(0.45, abs=1e-6)
    assert found.discount_interval == pytest.approx((0.45, 0.45), abs=1e-4)


@pytest.mark.slow
def test_rules_that_take_turns_are_different_rules_and_one_corrupted_layer_is_none() -> None:
    turns = identified(*[layer("weighted softmax TD"), layer("kernel regression")] * 2)
    assert turns.algorithm == "different rules in different layers"
    assert [members is not None and len(members) > 0 for members in turns.layer_members] == [True] * 4
    fits = [layer("weighted softmax TD")] * 3 + [layer("weighted softmax TD", [0.3, -0.7, 0.5])]
    assert identified(*fits).algorithm == "none of these"


def test_rules_without_values_to_bootstrap_from_are_one_class() -> None:
    softmax = identified(layer("weighted softmax TD"))
    assert softmax.members == (
        "weighted softmax TD",
        "kernel-based value iteration",
        "kernel regression",
        "kernel reward averaging",
    )
    assert softmax.algorithm == "kernel reward averaging"  # the fewest free parameters
    linear = identified(layer("linear TD"))
    assert linear.members == ("linear TD", "TD(lambda)", "residual gradient", "Monte-Carlo")
    assert linear.algorithm == "cannot tell these apart"


def test_at_discount_zero_td_is_monte_carlo_and_residual_gradient() -> None:
    found = identified(
        *[layer("linear TD", [0.8, 0.0, -0.8])] * 3, context=contexts(task=replace_gamma(TASK, 0.0))
    )
    assert {"linear TD", "TD(lambda)", "residual gradient", "Monte-Carlo"} <= set(found.members)


def replace_gamma(task: TaskConfig, gamma: float) -> TaskConfig:
    return task.model_copy(update={"gamma": gamma})


@pytest.mark.slow
def test_a_sharp_kernel_is_tabular_and_an_even_one_averages() -> None:
    one_hot = TaskConfig(num_states=4, context_length=16, feature_dim=4, features="one-hot")
    sharp = theta_star(feature_dim=4, num_layers=3, gamma=0.5, sharpness=60.0)
    found = identification(network_of(sharp), contexts(task=one_hot))
    assert {"tabular TD", "weighted softmax TD"} <= set(found.members)
    assert found.algorithm == "tabular TD"
    assert found.splitting_prompt in found.responses
    even = identified(*[layer("reward averaging")] * 3)
    assert set(even.members) >= {"reward averaging", "kernel reward averaging", "weighted softmax TD"}


@pytest.mark.slow
def test_depth_takes_td_to_lstd() -> None:
    """Linear TD of many small steps ends where LSTD is: the last values agree, the layers do not."""
    found = identified(*[layer("linear TD", [1.2, 0.6, -1.2])] * 6)
    assert found.algorithm == "linear TD"
    shallow = identified(*[layer("linear TD", [1.2, 0.6, -1.2])] * 2)
    lstd = ALGORITHMS.index("LSTD")
    assert float(found.end_to_end[lstd]) < float(shallow.end_to_end[lstd])


def test_interventions_on_hooks_are_foretold_and_leave_nothing_behind() -> None:
    network = network_of(theta_star(feature_dim=3, num_layers=3, gamma=0.5, sharpness=3.0))
    context = contexts()
    before = network.module(*network.inputs(context, context.features[:, :0]))
    found = identification(network, context)
    assert float(found.responses["discount halved"][ALGORITHMS.index("weighted softmax TD")]) < 1e-9
    assert float(found.responses["discount halved"][ALGORITHMS.index("linear TD")]) > 0.01
    after = network.module(*network.inputs(context, context.features[:, :0]))
    torch.testing.assert_close(before, after, rtol=0, atol=0)
    assert not any(module._forward_hooks for module in network.module.modules())


def test_linear_attention_shows_its_values_in_query_columns() -> None:
    model = build(ModelConfig(arch="linear", num_layers=3), TASK, torch.Generator().manual_seed(0))
    assert isinstance(model, LinearAttention)
    with torch.no_grad():
        model.alpha.fill_(0.8)
    found = identification(network_of(model.double()), contexts())
    assert found.algorithm == "linear TD"
    assert found.effective_discount == pytest.approx(0.5, abs=1e-6)


@pytest.mark.slow
def test_what_slots_do_not_show_is_asked_of_the_returned_values() -> None:
    network = RuleNetwork(Rules([layer("weighted softmax TD")] * 4))
    noise = torch.randn(48, 17, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = identification(Blind(network.module, noise), contexts())
    assert not found.layered
    assert found.unread > 1e-3
    assert found.errors.shape == (len(ALGORITHMS), 1)
    assert float(found.errors[ALGORITHMS.index("weighted softmax TD"), 0]) < 0.05


class Blind(RuleNetwork):
    """Slots that show noise."""

    def __init__(self, module: Rules, noise: Tensor) -> None:
        super().__init__(Wrapped(module, noise))  # type: ignore[arg-type]

    @property
    def slots(self) -> list[Slot]:
        return [Slot(hook="shown", layer=0)]


class Wrapped(nn.Module):
    """A module that shows something unrelated."""

    def __init__(self, module: Rules, noise: Tensor) -> None:
        super().__init__()
        self.inner, self.noise, self.shown = module, noise, nn.Identity()

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        self.shown(self.noise[: len(x), : x.shape[1]])
        return torch.as_tensor(self.inner(x, r))


def test_the_verdict_is_the_same_for_the_same_seed() -> None:
    first, again = (identified(*[layer("kernel regression")] * 2) for _ in range(2))
    torch.testing.assert_close(first.errors, again.errors, rtol=0, atol=0, equal_nan=True)
    assert first.interval == again.interval


def test_too_few_tasks_or_transitions_are_refused() -> None:
    with pytest.raises(InputError, match="8 contexts of 4 transitions; found 7 of 16; identification"):
        identified(layer("linear TD"), context=contexts(num_tasks=7))
    short = replace(
        contexts(),
        states=contexts().states[:, :4],
        features=contexts().features[:, :4],
        rewards=contexts().rewards[:, :3],
    )
    with pytest.raises(InputError, match="found 48 of 3"):
        identified(layer("linear TD"), context=short)


def test_an_identification_shows_its_name_and_the_errors_of_the_rules() -> None:
    found = identified(*[layer("weighted softmax TD")] * 2)
    title, margin, alike, discount, *_ = str(found).splitlines()
    assert title == "Algorithm: weighted softmax TD"
    assert margin.endswith(f"(over {found.runner_up})")
    assert alike.split(maxsplit=4)[-1] == (", ".join(found.members[1:]) or "no other rule")
    assert "0.5 [0.5, 0.5]" in discount
    table = found.table()
    assert table.columns.tolist() == ["rule", "layer 0", "layer 1", "end to end"]
    assert sorted(table.rule) == sorted(ALGORITHMS)
    assert table.rule[0] == "weighted softmax TD"
    row = table[table.rule == found.runner_up].iloc[0]
    assert row["layer 1"] == float(found.errors[ALGORITHMS.index(str(found.runner_up)), 1])
    assert "6 of 12 rows" in found._repr_html_()
    nothing = identified(layer("weighted softmax TD", [0.8, -0.4, -0.8]))
    assert "not identified" in str(nothing)
