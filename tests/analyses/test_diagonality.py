"""Kernel diagonality and contraction, against loops over the attention that the hooks show."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from valuelens.analyses import Finding, Result, Subject, diagonality, subject
from valuelens.models.icrl import ModelConfig, TaskConfig, build, theta_star
from valuelens.probe import attention_patterns, share_interval

SPHERE = TaskConfig(num_states=5, context_length=8)
ONE_HOT = TaskConfig(features="one-hot", num_states=5, context_length=8)


def star(task: TaskConfig, sharpness: float, alpha: float = 1.0) -> Subject:
    model = theta_star(
        feature_dim=task.feature_dim, num_layers=2, gamma=0.5, alpha=alpha, sharpness=sharpness
    )
    return subject(model, task, num_tasks=24)


def one(result: Result, name: str) -> Finding:
    (finding,) = result.find(name)
    return finding


def control(finding: Finding) -> float:
    assert finding.control is not None
    return float(str(finding.control.estimate))


def loop(studied: Subject, pattern: Tensor, b: int) -> tuple[dict[int, float], Tensor, Tensor]:
    """Diagonal of M_hat at visited states, M_hat and P_hat, of one context."""
    states = studied.context.states[b].tolist()
    S, n = studied.mrp.num_states, len(states) - 1
    M, P = torch.zeros(2, S, S, dtype=torch.float64)
    for s in set(states):
        row = pattern[b, states.index(s)]  # attention depends on the state only
        for k in range(n):
            M[s, states[k]] += row[k]
            P[s, states[k + 1]] += row[k]
    return {s: float(M[s, s]) for s in set(states[:n])}, M, P


def test_limits_of_shares_are_shares() -> None:
    """Of these eight contexts the coverage was .925 [.852, 1.009]."""
    model = theta_star(feature_dim=10, num_layers=2, gamma=0.5, sharpness=3.0)
    few = subject(model, TaskConfig(features="one-hot"), num_tasks=8, dtype=torch.float32)
    limits = one(diagonality(few), "coverage").interval
    assert limits is not None
    assert limits[0] < 0.9
    assert limits[1] == 1


@pytest.mark.parametrize("task", [SPHERE, ONE_HOT])
def test_empirical_numbers_equal_loops(task: TaskConfig) -> None:
    studied = star(task, 3.0, alpha=0.7)
    result, pattern = (
        diagonality(studied),
        attention_patterns(studied.model, studied.model.prompt(studied.context))[0],
    )
    means, smallest, covered, norms, radii = [], [], [], [], []
    for b in range(studied.num_tasks):
        diagonal, M, P = loop(studied, pattern, b)
        means.append(sum(diagonal.values()) / len(diagonal))
        smallest.append(min(diagonal.values()))
        covered.append(len(diagonal) / 5)
        kept = sorted(diagonal)
        if int(studied.context.states[b, -1]) in diagonal:
            step = (torch.eye(5) - 0.7 * M + 0.7 * 0.5 * P)[kept][:, kept]
            norms.append(float(step.abs().sum(1).max()))
            radii.append(float(torch.linalg.eigvals(step).abs().max()))
    assert 0 < len(norms) < 24  # contexts that end in a new state are left out
    for name, sample in (
        ("kernel_diagonal_mean", means),
        ("kernel_diagonal_min", smallest),
        ("coverage", covered),
        ("contraction_norm", norms),
        ("spectral_radius", radii),
    ):
        finding = one(result, name)
        assert_close(finding.estimate, sum(sample) / len(sample))
        assert finding.n == len(sample)
        if (
            max(sample) - min(sample) < 1e-9
        ):  # constant values have the eigenvalue 1 - alpha (1 - gamma) everywhere
            assert finding.reasons["interval"] == "too few tasks, or no spread between them"
        else:
            assert finding.interval is not None
            assert finding.interval[0] < sum(sample) / len(sample) < finding.interval[1]
    assert control(one(result, "coverage")) == sum(share == 1 for share in covered) / 24


def test_population_numbers_have_a_closed_form_for_one_hot_features() -> None:
    studied, e = star(ONE_HOT, 3.0), torch.tensor(3.0, dtype=torch.float64).exp()
    result, mu = diagonality(studied), studied.mrp.stationary
    diagonal = mu * e / (mu * e + 1 - mu)
    assert_close(result.arrays["population_diagonal"].values[0], diagonal)
    assert_close(one(result, "population_diagonal_mean").estimate, float(diagonal.mean()))
    least = float(diagonal.min(1).values.mean())
    assert_close(one(result, "population_diagonal_min").estimate, least)
    assert_close(one(result, "assumption_margin").estimate, least - 0.75)
    assert_close(control(one(result, "assumption_margin")), float(mu.min(1).values.mean()) - 0.75)


def test_even_attention_is_its_own_control() -> None:
    result = diagonality(star(SPHERE, 0.0))
    names = ("kernel_diagonal", "population_diagonal")
    for name in (f"{kind}_{which}" for kind in names for which in ("mean", "min")):
        finding = one(result, name)
        assert_close(finding.estimate, control(finding))
    finding = one(result, "assumption_margin")
    assert_close(finding.estimate, control(finding))


def test_a_sharp_kernel_is_tabular_and_contracts() -> None:
    result = diagonality(star(ONE_HOT, 30.0))
    assert_close(one(result, "kernel_diagonal_min").estimate, 1.0, atol=1e-6, rtol=0)
    assert float(str(one(result, "assumption_margin").estimate)) > 0.2
    assert_close(
        one(result, "contraction_norm").estimate, 0.5, atol=1e-6, rtol=0
    )  # I - M + gamma P -> gamma P
    for name in ("contraction_norm", "spectral_radius"):
        assert_close(one(result, name).estimate, control(one(result, name)))


def test_contraction_is_that_of_the_own_weights() -> None:
    slow = diagonality(star(ONE_HOT, 30.0, alpha=0.1))
    assert_close(one(slow, "contraction_norm").estimate, 1 - 0.1 * 0.5, atol=1e-6, rtol=0)
    assert_close(control(one(slow, "contraction_norm")), 0.5, atol=1e-6, rtol=0)


def test_the_first_of_several_untied_layers_has_no_contraction() -> None:
    model = theta_star(feature_dim=4, num_layers=3, gamma=0.5, alpha=[1, 1, 1], sharpness=[2, 2, 2])
    result = diagonality(subject(model, SPHERE, num_tasks=8))
    assert [finding.index["layer"] for finding in result.find("kernel_diagonal_mean")] == [0, 1, 2]
    assert [finding.index["layer"] for finding in result.find("spectral_radius")] == [1, 2]


def test_free_two_head_models_have_no_contraction() -> None:
    config = ModelConfig(arch="dual", weights="full", num_layers=2)
    result = diagonality(subject(build(config, SPHERE, torch.Generator()), SPHERE, num_tasks=8))
    assert result.find("kernel_diagonal_mean")
    assert not result.find("contraction_norm")


def test_a_transformer_has_a_diagonal_for_each_head() -> None:
    config = ModelConfig(arch="transformer", num_layers=2, d_model=8, num_heads=2)
    studied = subject(build(config, SPHERE, torch.Generator()), SPHERE, num_tasks=8)
    result = diagonality(studied)
    places = [(f.index["layer"], f.index["head"]) for f in result.find("kernel_diagonal_mean")]
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {finding.name for finding in result.findings} == {
        "coverage",
        "closed_share",
        "kernel_diagonal_mean",
    }
    result.summary()


def test_linear_attention_is_skipped() -> None:
    model = build(ModelConfig(arch="linear", num_layers=1), SPHERE, torch.Generator())
    result = diagonality(subject(model, SPHERE, num_tasks=4))
    assert result.findings == ()
    assert [each["what"] for each in result.skipped] == ["diagonality"]


def test_shares_of_tasks_are_counted_with_exact_intervals() -> None:
    sharp = diagonality(star(ONE_HOT, 30.0))
    assert one(sharp, "assumption_share").estimate == 1
    assert one(sharp, "assumption_share").interval == share_interval(24, 24)
    assert control(one(sharp, "assumption_share")) == 0
    shares = {finding.index["by"]: finding.estimate for finding in sharp.find("contraction_share")}
    assert shares == {"infinity norm": 1, "spectral radius": 1}


def test_the_assumption_is_sufficient_and_not_necessary() -> None:
    studied = star(SPHERE, 3.0)
    result = diagonality(studied)
    norm, radius = result.find("contraction_share")
    assert one(result, "assumption_share").estimate == 0
    assert radius.estimate == 1
    x, mu, P = studied.mrp.features, studied.mrp.stationary, studied.mrp.P
    below = []
    for b in range(24):
        M = torch.softmax(3 * x[b] @ x[b].T + mu[b].log(), -1)
        step = torch.eye(5) - M + 0.5 * M @ P[b]
        below.append(float(step.abs().sum(1).max()) < 1)
    assert norm.estimate == sum(below) / 24


def test_contexts_that_are_not_closed_are_counted() -> None:
    studied = star(SPHERE, 3.0)
    states = studied.context.states.tolist()
    closed = sum(path[-1] in path[:-1] for path in states)
    finding = one(diagonality(studied), "closed_share")
    assert finding.estimate == closed / 24
    assert one(diagonality(studied), "contraction_norm").n == closed < 24


def test_empirical_diagonals_are_kept_where_visited() -> None:
    studied = star(SPHERE, 3.0)
    kept = diagonality(studied).arrays["empirical_diagonal"].values[0]
    pattern = attention_patterns(studied.model, studied.model.prompt(studied.context))[0]
    for b in range(24):
        diagonal, _, _ = loop(studied, pattern, b)
        assert {s for s in range(5) if not kept[b, s].isnan()} == set(diagonal)
        for s, share in diagonal.items():
            assert_close(float(kept[b, s]), share)
