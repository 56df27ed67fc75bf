"""From which step on does a property hold? On rows written by hand, and what a row measures."""

import math

import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import Result, diagonality, distance, emergence, measurements, subject, value_errors
from valuelens.models.icrl import ModelConfig, TaskConfig, build, theta_star

TASK = TaskConfig(context_length=15)
STEPS = [0, 1, 10, 100]
COLUMNS = {
    "signs ++-": "signs",
    "cosine with (1, 1, -1) at least 0.97": "weight_cosine",
    "kernel diagonal at least tripled": "kernel_diagonal_mean",
    "MSVE at most a third of the constant predictor's": "msve_vs_constant",
    "within-chain R2 at least 0.85": "within_chain_r2",
    "effective discount within 0.1 of gamma": "discount_error",
    "the population map contracts in the median task": "population_radius",
    "Assumption 5.1 holds in the median task": "assumption_margin",
}


def run(seed: int = 0, **columns: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"seed": seed, "step": STEPS, **columns})


def steps(result: Result, **index: int | str) -> dict[str, object]:
    return {str(f.index["property"]): f.estimate for f in result.find("emergence_step", **index)}


def test_each_property_is_dated_by_its_own_column() -> None:
    found = emergence(
        run(
            signs=[0, 1, 1, 1],
            weight_cosine=[0.2, 0.9, 0.97, 0.99],
            kernel_diagonal_mean=[0.15, 0.3, 0.44, 0.46],
            msve_vs_constant=[1.2, 0.5, 0.3, 1 / 3],
            within_chain_r2=[0.9, 0.9, 0.85, 1.0],
            discount_error=[0.05, 0.3, 0.1, 0.0],
            population_radius=[0.9, 1.1, 1.0, 0.999],
            assumption_margin=[-0.7, 0.1, 0.01, 0.0],
        )
    )
    assert list(steps(found).values()) == [1, 10, 100, 10, 0, 10, 100, None]
    assert list(steps(found)) == list(COLUMNS)


@pytest.mark.parametrize(
    ("signs", "step"),
    [
        ([0, 0, 0, 1], 100),
        ([1, 1, 1, 1], 0),
        ([1, 0, 1, 1], 10),
        ([0, 1, 0, 1], 100),
        ([0, 1, 1, 0], None),
        ([0, 0, 0, 0], None),
        ([0, math.nan, 1, 1], 10),
    ],
)
def test_a_property_must_last(signs: list[float], step: int | None) -> None:
    (finding,) = emergence(run(signs=signs)).find("emergence_step")
    assert finding.estimate == step
    assert ("estimate" in finding.reasons) == (step is None)
    if step is None:
        assert finding.reasons["estimate"] == "it does not hold at the last checkpoint"


def test_the_control_shows_both_ends() -> None:
    (finding,) = emergence(run(signs=[0.0, 0, 0, 1])).find("emergence_step")
    assert finding.control is not None
    assert (finding.control.name, finding.control.estimate) == ("at step 0 and at the end", [0.0, 1.0])
    (undefined,) = emergence(run(weight_cosine=[math.nan, 1, 1, 1])).find("emergence_step")
    assert undefined.estimate == 1
    assert undefined.reasons["control"] == "not defined there"


def test_seeds_are_dated_apart() -> None:
    table = pd.concat([run(7, signs=[0, 0, 1, 1]), run(3, signs=[0, 1, 1, 1])])
    found = emergence(table)
    assert [finding.index["seed"] for finding in found.find("emergence_step")] == [3, 7]
    assert (steps(found, seed=3), steps(found, seed=7)) == ({"signs ++-": 1}, {"signs ++-": 10})
    assert found.findings[0].n == 4
    found.summary()


def test_a_row_agrees_with_the_full_analyses() -> None:
    model = theta_star(feature_dim=4, num_layers=3, gamma=0.5, alpha=0.7, sharpness=5.0)
    studied = subject(model, TASK, num_tasks=12)
    row, full = measurements(studied), [*value_errors(studied), *distance(studied).findings]
    estimates = {finding.name: finding.estimate for finding in (*full, *diagonality(studied).findings)}
    for name in (
        "msve_ratio",
        "msve_vs_constant",
        "within_chain_r2",
        "weight_cosine",
        "sharpness",
        "effective_discount",
        "kernel_diagonal_mean",
    ):
        assert_close(row[name], estimates[name])
    assert row["signs"] == 1
    assert_close([row[name] for name in ("w_R", "w_T", "w_C")], [0.7, 0.7, -0.7])


def test_the_population_map_equals_a_loop() -> None:
    model = theta_star(feature_dim=4, num_layers=3, gamma=0.5, alpha=0.7, sharpness=5.0)
    with torch.no_grad():
        model.w[0].copy_(torch.tensor([1.0, 0.8, -1.2]))
    studied = subject(model, TASK, num_tasks=5)
    row, mu, radii, margins = measurements(studied), studied.mrp.stationary, [], []
    for b in range(5):
        x, step, M = studied.mrp.features[b], torch.eye(10).double(), torch.zeros(10, 10).double()
        for s in range(10):
            weights = [float(mu[b, u]) * math.exp(5 * float(x[u] @ x[s])) for u in range(10)]
            M[s] = torch.tensor(weights) / sum(weights)
        step = step - 1.2 * M + 0.5 * 0.8 * M @ studied.mrp.P[b]
        radii.append(float(torch.linalg.eigvals(step).abs().max()))
        margins.append(float(M.diagonal().min()) - 0.75)
    assert_close(row["population_radius"], sorted(radii)[2])
    assert_close(row["assumption_margin"], sorted(margins)[2])
    assert_close(row["discount_error"], abs(0.5 * 0.8 / 1.2 - 0.5))


def test_a_planted_run_is_dated_and_ordered() -> None:
    """Signs and contraction, then direction and discount, then the sharpness that values need."""
    planted = [
        ((-0.5, -0.2, 0.3), 1.0),
        ((0.1, 0.1, -0.4), 1.0),
        ((0.9, 0.9, -0.9), 1.0),
        ((0.9, 0.9, -0.9), 9.0),
    ]
    rows = []
    for seed in (0, 1):
        for step, (w, c) in zip(STEPS, planted, strict=True):
            model = theta_star(feature_dim=4, num_layers=8, gamma=0.5, sharpness=c)
            with torch.no_grad():
                model.w[0].copy_(torch.tensor(w))
            row = measurements(subject(model, TaskConfig(context_length=90), num_tasks=32))
            rows.append({"seed": seed, "step": step, **row})
    found = emergence(pd.DataFrame(rows))
    assert steps(found, seed=1) == dict(zip(COLUMNS, [1, 10, 100, 100, 100, 10, 1, None], strict=True))
    (order,) = found.find("emergence_order")
    assert order.estimate == [list(COLUMNS)[place] for place in (0, 6, 1, 5, 2, 3, 4)]  # never: left out
    shares = [f.estimate for f in found.find("emergence_precedes")]
    assert shares == [0, 1, 0, 1, 0, 0]  # ties within a checkpoint are no order


def test_untied_layers_are_joined() -> None:
    model = theta_star(feature_dim=4, num_layers=3, gamma=0.5, alpha=[0.5, 0.6, 0.7], sharpness=[1.0, 2, 3])
    with torch.no_grad():
        model.w[0].copy_(torch.tensor([1.0, -5, 5]))  # not identified there
        model.w[1].copy_(torch.tensor([1.0, 0.1, -1]))
    row = measurements(subject(model, TASK, num_tasks=6))
    assert row["signs"] == 1
    assert_close(row["weight_cosine"], 2.1 / math.sqrt(3 * 2.01))
    assert_close((row["w_R"], row["sharpness"]), (0.7, 3.0))
    with torch.no_grad():
        model.w[1, 1] = -0.1
    assert measurements(subject(model, TASK, num_tasks=6))["signs"] == 0


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        (ModelConfig(num_layers=1), {"signs", "weight_cosine"}),
        (
            ModelConfig(arch="dual", weights="full", num_layers=2),
            {"signs", "weight_cosine", "w_R", "sharpness"},
        ),
        (ModelConfig(arch="linear", num_layers=2), {"signs", "kernel_diagonal_mean"}),
        (ModelConfig(arch="transformer", num_layers=1, d_model=8, num_heads=2), {"signs", "w_R"}),
    ],
)
def test_what_a_model_does_not_have_is_not_measured(config: ModelConfig, missing: set[str]) -> None:
    row = measurements(subject(build(config, TASK, torch.Generator()), TASK, num_tasks=4))
    assert not missing & set(row)
    assert {"msve_ratio", "msve_vs_constant", "within_chain_r2"} <= set(row)
    found = emergence(pd.DataFrame([{"seed": 0, "step": 0, **row}]))
    assert {COLUMNS[name] for name in steps(found)} <= set(row)
