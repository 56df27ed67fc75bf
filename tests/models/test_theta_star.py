"""theta* is weighted softmax TD: dual head = single head + TSM = algorithm = state form, to 1e-10.

The judge is `softmax_td_in_loops`, plain Python after theory A2. Mutants of each form, made from its source, show
that the judge sees a wrong sign, shift, mask or discount.
"""

import inspect
import math
import textwrap
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from valuelens.models import InputError
from valuelens.models.icrl import (
    MarkovRewardProcess,
    _softmax_td,
    _state_form,
    _theta_star,
    context_of,
    softmax_td_from_matrices,
    theta_star,
)
from valuelens.probe import _kernel, _td

FEATURE_SCALE = 0.7


def softmax_td_in_loops(
    x: list[list[float]], rewards: list[float], gamma: float, alphas: list[float], sharpness: list[float]
) -> list[float]:
    """v_L at every column (and query behind them) of one context, from v_0 = 0."""
    n = len(rewards)
    v = [0.0 for _ in x]
    for alpha, c in zip(alphas, sharpness, strict=True):
        delta = {k: rewards[k - 1] + gamma * v[k] - v[k - 1] for k in range(1, n + 1)}
        after = []
        for j in range(len(x)):
            g = {k: c * sum(a * b for a, b in zip(x[j], x[k - 1], strict=True)) for k in range(1, n + 1)}
            largest = max(g.values())
            total = sum(math.exp(g[m] - largest) for m in range(1, n + 1))
            increment = 0.0
            for k in range(1, n + 1):
                increment += math.exp(g[k] - largest) / total * delta[k]
            after.append(v[j] + alpha * increment)
        v = after
    return v


class Case(NamedTuple):
    """Two contexts over S states; the queries behind the columns are all states, visited or not."""

    mrp: MarkovRewardProcess
    states: Tensor
    alphas: list[float]
    sharpness: list[float]
    tied: bool

    @property
    def num_layers(self) -> int:
        return len(self.alphas)

    def expected(self) -> Tensor:
        context = context_of(self.mrp, self.states)
        x = torch.cat([context.features, self.mrp.features], dim=1)
        values = [
            softmax_td_in_loops(*one, self.mrp.gamma, self.alphas, self.sharpness)
            for one in zip(x.tolist(), context.rewards.tolist(), strict=True)
        ]
        return torch.tensor(values, dtype=torch.float64)


def case(*, S=4, d=3, n=6, seed=0, gamma=0.8, alphas=(0.9, 0.5, 1.1), sharpness=(2.0, 1.0, 3.0), tied=False):
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(2, *shape, generator=g, dtype=torch.float64)

    mrp = MarkovRewardProcess(
        P=torch.full((2, S, S), 1 / S, dtype=torch.float64),
        r=normal(S),
        p0=torch.full((2, S), 1 / S, dtype=torch.float64),
        features=FEATURE_SCALE * normal(S, d),
        gamma=gamma,
    )
    states = torch.randint(S, (2, n + 1), generator=g)
    return Case(mrp, states, list(alphas), list(sharpness), tied)


def model_of(case: Case, arch: str) -> _softmax_td.SoftmaxTD:
    alpha, c = (case.alphas[0], case.sharpness[0]) if case.tied else (case.alphas, case.sharpness)
    feature_dim = case.mrp.features.shape[-1]
    return _theta_star.theta_star(
        feature_dim=feature_dim,
        num_layers=case.num_layers,
        gamma=case.mrp.gamma,
        alpha=alpha,
        sharpness=c,
        arch=arch,
    )


def column_form(case: Case, arch: str) -> Tensor:
    model, context = model_of(case, arch), context_of(case.mrp, case.states)
    prompt = model.prompt(context, case.mrp.features)
    _, cache = model.run_with_cache(prompt, 1 + case.mrp.num_states)
    return cache[f"blocks.{case.num_layers - 1}.hook_value"]


def at_columns(case: Case, table: Tensor) -> Tensor:
    return torch.cat([table.gather(1, case.states), table], dim=1)


def weights_of(case: Case) -> Tensor:
    return torch.tensor(case.alphas, dtype=torch.float64)[:, None] * _kernel.TD_WEIGHTS


def algorithm(case: Case) -> Tensor:
    context = context_of(case.mrp, case.states)
    x = torch.cat([context.features, case.mrp.features], dim=1)
    mask = torch.zeros(x.shape[1], dtype=torch.float64)
    mask[context.num_transitions :] = -torch.inf
    kernels = torch.stack([_kernel.softmax_kernel(c * x @ x.mT + mask) for c in case.sharpness])
    options = {"gamma": case.mrp.gamma, "num_layers": case.num_layers, "w": weights_of(case)}
    return _td.softmax_td(torch.zeros(x.shape[:2]).double(), context.rewards, kernels, **options)[-1]


def state_form(case: Case) -> Tensor:
    context, x = context_of(case.mrp, case.states), case.mrp.features
    kernels = [
        _kernel.state_kernel_from_scores(c * x @ x.mT, case.states, context.rewards) for c in case.sharpness
    ]
    options = {"gamma": case.mrp.gamma, "num_layers": case.num_layers, "w": weights_of(case)}
    return at_columns(case, _td.softmax_td_states(torch.zeros_like(case.mrp.r), kernels, **options)[-1])


def training_engine(case: Case) -> Tensor:
    statistics = _state_form.context_statistics(case.mrp, case.states)
    return at_columns(case, _state_form.state_form_values(model_of(case, "tsm"), statistics))


FORMS = {
    "tsm": lambda case: column_form(case, "tsm"),
    "dual": lambda case: column_form(case, "dual"),
    "algorithm": algorithm,
    "state form": state_form,
    "training engine": training_engine,
}


def judge(form: str, case: Case) -> None:
    assert_close(FORMS[form](case).detach(), case.expected(), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25)
@given(
    S=st.integers(1, 6),
    d=st.integers(1, 5),
    n=st.integers(1, 10),
    seed=st.integers(0, 2**16),
    gamma=st.floats(0, 0.99),
    layers=st.lists(st.tuples(st.floats(0.05, 1.2), st.floats(0, 8)), min_size=1, max_size=5),
    tied=st.booleans(),
)
def test_every_form_is_weighted_softmax_td(form, S, d, n, seed, gamma, layers, tied):
    layers = [layers[0]] * len(layers) if tied else layers
    alphas, sharpness = zip(*layers, strict=True)
    judge(form, case(S=S, d=d, n=n, seed=seed, gamma=gamma, alphas=alphas, sharpness=sharpness, tied=tied))


BLOCK, STATES_STEP = (_softmax_td._Block, "forward"), (_td, "softmax_td_states_step")
STAR, SHIFT, MASK = (_theta_star, "theta_star"), (_softmax_td, "_shift"), (_softmax_td, "source_mask")
STEP, SCORES = (_td, "softmax_td_step"), (_kernel, "state_kernel_from_scores")
ENGINE, COUNTS = (_state_form, "_iterates"), (_state_form, "context_statistics")
HEAD = (_softmax_td.SoftmaxTD, "_value_output")
QUERY = "torch.nn.functional.one_hot(states[:, -1], S)"

MUTANTS = [
    ("tsm", "sign of w_C", STAR, "[1.0, 1.0, -1.0]", "[1.0, 1.0, 1.0]"),
    ("tsm", "sign of w_T", STAR, "[1.0, 1.0, -1.0]", "[1.0, -1.0, -1.0]"),
    ("tsm", "sign of the update", BLOCK, "resid + self.hook_attn_out", "resid - self.hook_attn_out"),
    ("tsm", "no shift", SHIFT, "x[:, 1 : n + 1]", "x[:, :n]"),
    ("tsm", "shift by two", SHIFT, "x[:, 1 : n + 1]", "x[:, 2 : n + 2]"),
    ("tsm", "no mask", MASK, "-torch.inf", "0.0"),
    ("tsm", "mask without S_n", MASK, "- num_queries :", "- num_queries + 1 :"),
    ("tsm", "mask too wide", MASK, "- num_queries :", "- num_queries - 1 :"),
    ("tsm", "no gamma", BLOCK, "self.gamma * _shift(current", "_shift(current"),
    ("tsm", "gamma squared", BLOCK, "self.gamma * _shift(current", "self.gamma**2 * _shift(current"),
    ("dual", "sign of w_C", STAR, "[1.0, 1.0, -1.0]", "[1.0, 1.0, 1.0]"),
    ("dual", "sign of one head", STAR, "nn.Parameter(w.clone())", "nn.Parameter(-w)"),
    ("dual", "sign of the shifted head", BLOCK, "update + self.gamma", "update - self.gamma"),
    ("dual", "heads exchanged", HEAD, "above = D + row", "above = 2 * D - 3 - (D + row)"),
    ("dual", "no shift", SHIFT, "x[:, 1 : n + 1]", "x[:, :n]"),
    ("dual", "shift by two", SHIFT, "x[:, 1 : n + 1]", "x[:, 2 : n + 2]"),
    ("dual", "no mask", MASK, "-torch.inf", "0.0"),
    ("dual", "mask without S_n", MASK, "- num_queries :", "- num_queries + 1 :"),
    ("dual", "mask too wide", MASK, "- num_queries :", "- num_queries - 1 :"),
    ("dual", "no gamma", BLOCK, "self.gamma * _shift(pattern", "_shift(pattern"),
    ("dual", "gamma squared", BLOCK, "self.gamma * _shift(pattern", "self.gamma**2 * _shift(pattern"),
    ("algorithm", "sign of w_C", STEP, "+ w[2] *", "- w[2] *"),
    ("algorithm", "no shift", STEP, "values[:, 1 : n + 1]", "values[:, :n]"),
    ("algorithm", "mask of other sources", STEP, "kernel[..., :n]", "kernel[..., 1 : n + 1]"),
    ("algorithm", "no gamma", STEP, "gamma * w[1]", "w[1]"),
    ("state form", "sign of w_C", STATES_STEP, "w[2] * kernel.M_hat", "-w[2] * kernel.M_hat"),
    ("state form", "no shift", SCORES, "states[:, 1 : n + 1].long()", "states[:, :n].long()"),
    (
        "state form",
        "mask without S_n",
        SCORES,
        "counts = transitions.sum(-1)",
        "counts = transitions.sum(-1) + torch.nn.functional.one_hot(states[:, n].long(), S)",
    ),
    ("state form", "no gamma", STATES_STEP, "gamma * w[1]", "w[1]"),
    ("training engine", "sign of w_C", ENGINE, "w_C * identity", "-w_C * identity"),
    ("training engine", "no shift", COUNTS, "S + states[:, 1:]", "S + states[:, :-1]"),
    ("training engine", "mask without S_n", COUNTS, "visits.sum(-1)", f"visits.sum(-1) + {QUERY}"),
    ("training engine", "no gamma", ENGINE, "(gamma * w_T)", "w_T"),
]


def mutant(owner: Any, name: str, old: str, new: str) -> Any:
    """A function of the library with one piece of its source exchanged."""
    function = inspect.unwrap(getattr(owner, name))
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{name} holds {old!r} {source.count(old)} times: move the mutant along"
    namespace = dict(function.__globals__)
    exec(source.replace(old, new), namespace)
    return namespace[name]


@pytest.mark.parametrize(
    ("form", "place", "old", "new"),
    [pytest.param(form, *mutation, id=f"{form}: {what}") for form, what, *mutation in MUTANTS],
)
def test_the_judge_sees_every_mutant(monkeypatch, form, place, old, new):
    judge(form, case())
    monkeypatch.setattr(*place, mutant(*place, old, new))
    with pytest.raises(AssertionError, match="not close"):
        judge(form, case())


def test_one_number_is_tied_and_numbers_a_layer_are_not():
    tied = theta_star(feature_dim=2, num_layers=3, gamma=0.9, alpha=0.5, sharpness=2)
    untied = theta_star(feature_dim=2, num_layers=3, gamma=0.9, alpha=[0.5] * 3, sharpness=2)
    assert (tied.tied, untied.tied, len(tied.w), len(untied.w)) == (True, False, 1, 3)
    assert_close(tied.A, untied.A)
    assert_close(tied.V, untied.V)


@pytest.mark.parametrize("arch", ["tsm", "dual"])
def test_the_matrices_are_the_papers(arch):
    """A = c diag(I_d, 0); the row alpha [0, 1, 1, -1] into current memory, with a second head into target memory."""
    model = theta_star(feature_dim=2, num_layers=1, gamma=0.9, alpha=0.5, sharpness=3, arch=arch)
    row = torch.tensor([0, 0, 0.5, 0.5, -0.5], dtype=torch.float64)
    A, V, V_target = torch.zeros(3, 1, 5, 5, dtype=torch.float64)
    A[0, 0, 0] = A[0, 1, 1] = 3
    V[0, 4], V_target[0, 3] = row, row
    expected = {"A": A, "V": V, "V_target": V_target} if arch == "dual" else {"A": A, "V": V}
    assert_close({name: matrix.detach() for name, matrix in model.matrices().items()}, expected)


@pytest.mark.parametrize("arch", ["tsm", "dual"])
def test_from_matrices_is_the_model_with_these_matrices(arch):
    each = case()
    model = model_of(each, arch)
    again = softmax_td_from_matrices(
        model.A.detach(),
        model.V.detach(),
        gamma=each.mrp.gamma,
        V_target=None if model.V_target is None else model.V_target.detach(),
    )
    assert (again.arch, again.weights, again.tied) == (arch, "full", False)
    prompt = model.prompt(context_of(each.mrp, each.states))
    assert_close(again(prompt), model(prompt))


def test_as_many_numbers_as_layers():
    with pytest.raises(InputError, match=r"alpha must be one number or one a layer; found 2 for 3 layers"):
        theta_star(feature_dim=2, num_layers=3, gamma=0.9, alpha=[1.0, 1.0])
    with pytest.raises(InputError, match=r"sharpness must be one number or one a layer; found 4 for 3"):
        theta_star(feature_dim=2, num_layers=3, gamma=0.9, sharpness=[1.0] * 4)
