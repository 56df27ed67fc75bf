"""Do costates average to the value gradient, and does GRPO's update point along it? Writes `continuous.md`.

    .venv/bin/python benchmarks/continuous.py

Continuous control with known value gradients: everything is compared with a closed form or with quadrature. One
thread, half a minute.
"""

from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from valuelens.models.control import (
    DoubleWell,
    Noise,
    Pendulum,
    ShiftPolicy,
    System,
    pathwise_costates,
    pathwise_gradients,
    regulator,
    rollout,
    score_function_gradients,
    value_by_quadrature,
)
from valuelens.probe import group_advantages

SEEDS, HORIZON, ROLLOUTS = range(5), 10, 100_000
NOISES: tuple[Noise, ...] = ("gaussian", "laplace", "logistic")
GROUPS, GROUP_ROLLOUTS = (2, 4, 8, 16, 64, 256), 65_536


def policy(system: System, noise: Noise, seed: int) -> ShiftPolicy:
    """A linear policy of a seed."""
    generator = torch.Generator().manual_seed(seed)
    mean = torch.nn.Linear(system.state_dim, system.action_dim).double()
    for parameter in mean.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return ShiftPolicy(mean, noise=noise, scale=0.3)


def starts(system: System, count: int) -> Tensor:
    """One state, many times."""
    return torch.full((count, system.state_dim), 0.6, dtype=torch.float64)


def truth(system: System, chosen: ShiftPolicy) -> Tensor:
    """dV_0/ds at the start, by quadrature."""
    slope = value_by_quadrature(system, chosen, horizon=HORIZON, reach=1.0)[0].deriv()(0.6)
    return torch.tensor([slope], dtype=torch.float64)


def costate_rows() -> list[dict[str, object]]:
    """Errors of mean costates in standard errors."""
    rows: list[dict[str, object]] = []
    for noise in NOISES:
        errors, system = [], DoubleWell()
        for seed in SEEDS:
            chosen, generator = policy(system, noise, seed), torch.Generator().manual_seed(seed)
            eps = chosen.noise((ROLLOUTS, HORIZON, 1), generator)
            costates = pathwise_costates(system, chosen, starts(system, ROLLOUTS), eps)[:, 0]
            error = costates.mean(0) - truth(system, chosen)
            errors.append(float(error / (costates.std(0) / ROLLOUTS**0.5)))
        shown = ", ".join(f"{each:+.1f}" for each in errors)
        rows.append({"noise": noise, "error in standard errors, seeds 0-4": shown})
    return rows


def variance_rows() -> list[dict[str, object]]:
    """Variance of the score-function estimator (with baseline) over that of the pathwise one."""
    rows: list[dict[str, object]] = []
    for name, system in {
        "regulator": regulator(),
        "double well": DoubleWell(),
        "pendulum": Pendulum(),
    }.items():
        for noise in NOISES:
            ratios, gaps = [], []
            for seed in SEEDS:
                chosen, generator = policy(system, noise, seed), torch.Generator().manual_seed(seed)
                s0, n = starts(system, 20_000), 20_000
                run = rollout(system, chosen, s0, chosen.noise((n, HORIZON, system.action_dim), generator))
                discounts = system.gamma ** torch.arange(HORIZON, dtype=torch.float64)
                to_go = run.returns_to_go.detach()
                score = score_function_gradients(chosen, run, discounts * (to_go - to_go.mean(0)))
                other = chosen.noise((n, HORIZON, system.action_dim), generator)
                pathwise = pathwise_gradients(system, chosen, s0, other)
                error = ((score.var(0) + pathwise.var(0)) / n).sqrt()
                gaps.append(float(((score.mean(0) - pathwise.mean(0)).abs() / error).max()))
                ratios.append(float(score.var(0).sum() / pathwise.var(0).sum()))
            median = pd.Series(ratios).median()
            rows.append(
                {
                    "system": name,
                    "noise": noise,
                    "variance ratio, median (range)": f"{median:.0f} ({min(ratios):.0f} to {max(ratios):.0f})",
                    "largest difference of means, in standard errors": f"{max(gaps):.1f}",
                }
            )
    return rows


def alignment_rows() -> list[dict[str, object]]:
    """Cosine of the GRPO update with the value-gradient update, by group size, from one start and from many."""
    rows: list[dict[str, object]] = []
    system = regulator()
    for n in GROUPS:
        row: dict[str, object] = {"group": n}
        for where in ("one start", "many starts"):
            single, mean = [], []
            for seed in SEEDS:
                chosen, generator = policy(system, "gaussian", seed), torch.Generator().manual_seed(seed)
                shape = (GROUP_ROLLOUTS // n, 1, 2)
                drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
                groups = drawn if where == "many starts" else torch.full_like(drawn, 0.6)
                s0 = groups.expand(-1, n, 2).reshape(-1, 2)
                eps = chosen.noise((len(s0), HORIZON, 1), generator)
                run = rollout(system, chosen, s0, eps)
                gradient = pathwise_gradients(system, chosen, s0, eps).mean(0)
                returns = run.returns_to_go[:, 0].detach().reshape(-1, n)
                advantages = group_advantages(returns, scale_by_std=True).reshape(-1, 1).expand(-1, HORIZON)
                updates = (
                    score_function_gradients(chosen, run, advantages).reshape(len(groups), n, -1).mean(1)
                )
                single.append(float(torch.cosine_similarity(updates, gradient[None], dim=1).mean()))
                mean.append(float(torch.cosine_similarity(updates.mean(0), gradient, dim=0)))
            row[f"{where}: one group"] = f"{pd.Series(single).median():.3f}"
            row[f"{where}: mean of all groups"] = f"{pd.Series(mean).median():.5f}"
        rows.append(row)
    return rows


def main() -> None:
    """Measure and write the page."""
    torch.set_num_threads(1)
    tables = [
        pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True)
        for rows in (costate_rows(), variance_rows(), alignment_rows())
    ]
    (Path(__file__).parent / "continuous.md").write_text(
        "# Costates and critic-free updates where the value gradient is known\n\n"
        f"Command: `python benchmarks/continuous.py`. Horizon {HORIZON}, seeds 0-4 (policy and noise).\n\n"
        f"## Mean costates against the value gradient\n\nDouble well, {ROLLOUTS:,} rollouts from one state; truth by "
        f"quadrature.\n\n{tables[0]}\n\n"
        "## Score-function against pathwise gradients\n\nTotal variance of the score-function estimator (rewards to "
        f"go, mean baseline) over that of the pathwise estimator, 20,000 rollouts.\n\n{tables[1]}\n\n"
        "## GRPO's update against the value-gradient update\n\nRegulator, std-normalised advantages, "
        f"{GROUP_ROLLOUTS:,} rollouts a row; cosine with the pathwise gradient, medians over seeds. From many starts "
        "the division by each group's standard deviation reweighs starts, so even the mean of endlessly many and large "
        f"groups is not the gradient.\n\n{tables[2]}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
