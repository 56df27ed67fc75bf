"""Is theta* where the expected update (NEU) is least? Writes `neu.md` beside this file.

    .venv/bin/python benchmarks/neu.py [--runs runs/benchmark]

`--runs` holds the runs of `benchmarks/pretraining.py`, whose restricted checkpoints are compared with theta*.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from neu_tasks import (
    DEPTH,
    DIRECTIONS,
    LENGTHS,
    NUM_TASKS,
    RANDOM,
    SHARP,
    Tasks,
    Weights,
    directions,
    random_weights,
    star,
    task_of,
    trained,
)
from torch import Tensor

from valuelens import probe
from valuelens.analyses import credit, subject
from valuelens.models import icrl

SEEDS, RADII = range(5), (0.01, 0.03, 0.1, 0.3, 1.0)
ZERO = 1e-12
"""What counts as zero: a smaller difference is a tie."""


def markdown(rows: list[dict[str, object]]) -> str:
    """A table."""
    frame = pd.DataFrame(rows)
    lines = [list(frame.columns), ["---"] * len(frame.columns), *frame.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def number(x: float) -> str:
    """Two digits."""
    return f"{x:.1e}" if x and (abs(x) < 1e-3 or abs(x) >= 1e4) else f"{x:.2g}"


def share(some: Tensor) -> str:
    """A share of trials in percent, with their number."""
    return f"{100 * float(some.double().mean()):.1f} % of {some.numel():,}"


def identities() -> list[dict[str, object]]:
    """The identities of A4-A6 and A10 on theta*: largest error over tasks, states, layers, forms and seeds 0-4."""
    errors: dict[str, list[float]] = {}
    for features in SHARP:
        for seed in SEEDS:
            for name, error in _identities(features, seed):
                errors.setdefault(name, []).append(error)
    return [{"identity": name, "largest error": f"{max(found):.1e}"} for name, found in errors.items()]


def _identities(features: str, seed: int) -> Iterator[tuple[str, float]]:
    tasks, task = Tasks(task_of(features, 0.5), seed), task_of(features, 0.5)
    mrp, gamma = tasks.mrp, 0.5
    for arch in ("tsm", "dual"):
        model = icrl.theta_star(
            feature_dim=task.feature_dim, num_layers=6, gamma=gamma, alpha=0.8, sharpness=5.0, arch=arch
        )
        context = icrl.context_of(mrp, tasks.states[:, :31])
        by_column = model.values(context, mrp.features).detach()
        A, w = model.A[:1, : task.feature_dim, : task.feature_dim].detach(), 0.8 * probe.TD_WEIGHTS
        by_state = icrl.state_form_iterates(A, w[None], tasks.contexts[30], gamma=gamma, num_layers=6)[-1]
        yield "A4: attention over columns = recursion over states", float((by_column - by_state).abs().max())
        findings = credit(subject(model, task, num_tasks=NUM_TASKS, seed=seed)).findings
        gaps = [f.estimate for f in findings if f.index["weights"] == "own"]
        yield "A10: costates = transposed update, layer by layer (relative)", max(float(str(g)) for g in gaps)
    x = mrp.features
    scores = probe.bilinear_scores(x, x, A[0])
    population = probe.population_state_kernel(scores, mrp.P, mrp.r, tasks.mu)
    moved = probe.softmax_td_states_step(mrp.value, population, gamma=gamma, w=w) - mrp.value
    yield "A5: v_pi is a fixed point for endless contexts, whatever the kernel", float(moved.abs().max())
    finite = probe.state_kernel_from_scores(
        scores, tasks.states[:, :31], mrp.r.gather(1, tasks.states[:, :30])
    )
    fixed = probe.fixed_point(finite, gamma=gamma, w=w)
    moved = (probe.softmax_td_states_step(fixed, finite, gamma=gamma, w=w) - fixed) * finite.visited
    yield (
        "A5: empirical fixed point, visited states of closed contexts",
        float(moved[finite.closed].abs().max()),
    )
    over = probe.contraction_norm(finite, gamma=gamma, w=w) - probe.contraction_bound(
        finite, gamma=gamma, w=w
    )
    yield "A5: infinity norm above its bound", float(over.clamp(min=0).max())
    chain = (mrp.P, mrp.r, tasks.mu, gamma)
    yield "A6: NEU at v_pi", float(probe.neu(mrp.value, *chain).max())
    v, mean = mrp.value, torch.einsum("bst,bt->bs", mrp.P, mrp.value)
    variance = torch.einsum("bst,bt->bs", mrp.P, v.square()) - mean.square()
    truth = gamma**2 * (tasks.mu * variance).sum(-1)
    yield (
        "A6: MSTDE at v_pi = gamma^2 E Var[v_pi(S') | S]",
        float((probe.mstde(v, *chain) - truth).abs().max()),
    )
    least = probe.mstde_minimum(*chain).values.requires_grad_()
    (slope,) = torch.autograd.grad(probe.mstde(least, *chain).sum(), least)
    yield "A6: gradient of MSTDE at its minimiser", float(slope.abs().max())


def population(alpha: float) -> tuple[str, str]:
    """theta* against random weights and perturbations, endless contexts, gamma .5, one-hot features."""
    everything = [Tasks(task_of("one-hot", 0.5), seed) for seed in SEEDS]
    at = star("one-hot", everything[0].mrp.features.shape[-1], alpha)
    own = torch.tensor([tasks.neu(at) for tasks in everything])
    margin = min(float(probe.assumption_margin(tasks.kernel(at).M_hat, 0.5).min()) for tasks in everything)

    def tried(make: partial[Iterator[Weights]]) -> Tensor:
        return torch.tensor([[tasks.neu(w) for w in make(tasks, at)] for tasks in everything])

    rows = [
        _against(f"random, {signs} signs", "-", tried(partial(random_weights, signs=signs)), own)
        for signs in ("any", "++-")
    ]
    for kind in ("A and w", "A", "alpha"):
        for radius in RADII:
            found = tried(partial(_perturbed, radius=radius, kind=kind))
            name = f"perturbed in {kind}" + ("" if kind == "A and w" else " alone")
            rows.append(_against(name, str(radius), found, own))
    text = (
        f"alpha = {alpha}, c = {SHARP['one-hot']:g}: NEU of theta* at L = {DEPTH} on seeds 0-4 is "
        f"{', '.join(number(float(x)) for x in own)}; smallest margin of Assumption 5.1 over all tasks {margin:.3f}."
    )
    return text, markdown(rows)


def say(part: str) -> None:
    """Where the benchmark is."""
    print(f"{time.process_time():6.0f} s  {part}", flush=True)


def _perturbed(tasks: Tasks, at: Weights, *, radius: float, kind: str) -> Iterator[Weights]:
    return (at.moved(radius, direction) for direction in directions(tasks, at, kind))


def _against(name: str, radius: str, found: Tensor, own: Tensor) -> dict[str, object]:
    difference = found - own[:, None]
    ties = difference.abs() <= ZERO
    return {
        "weights": name,
        "radius": radius,
        "number": f"{found.numel():,}",
        "least NEU": number(float(found.min())),
        "median NEU": number(float(found.median())),
        "above theta*": int((difference > ZERO).sum()),
        "tie": int(ties.sum()),
        "below theta*": int((difference < -ZERO).sum()),
    }


def checkpoints(found: list[tuple[str, int, Weights]]) -> tuple[str, str]:
    """Trained checkpoints on their own task distribution against theta* of it, endless contexts."""
    everything = [Tasks(task_of("sphere", 0.5), seed) for seed in SEEDS]
    at = star("sphere", 4, 1.0)
    own = [tasks.neu(at) for tasks in everything]
    margins = torch.cat([probe.assumption_margin(tasks.kernel(at).M_hat, 0.5) for tasks in everything])
    rows = []
    for run in sorted({name.rsplit("/", 1)[0] for name, *_ in found}):
        mine = [(step, weights) for name, step, weights in found if name.startswith(run)]
        for depth in ("its own L", f"L = {DEPTH}"):
            if depth != "its own L" and len(mine[0][1].w) > 1:
                continue
            deep = [w if depth == "its own L" else replace(w, num_layers=DEPTH) for _, w in mine]
            values = torch.tensor([[tasks.neu(w) for w in deep] for tasks in everything])
            last = values[:, [step == max(s for s, _ in mine) for step, _ in mine]]
            rows.append(
                {
                    "run": run,
                    "depth": depth,
                    "checkpoints": len(mine),
                    "least NEU": number(float(values.min())),
                    "median NEU of the last": number(float(last.median())),
                    "not above theta*": int((values <= torch.tensor(own)[:, None]).sum()),
                }
            )
    text = (
        f"theta* with alpha = 1, c = {SHARP['sphere']:g}, L = {DEPTH}: NEU {', '.join(map(number, own))} on seeds 0-4; "
        f"Assumption 5.1 holds on {int((margins > 0).sum())} of {len(margins)} tasks (least margin "
        f"{float(margins.min()):.3f})."
    )
    return text, markdown(rows)


def rates() -> str:
    """NEU against depth for endless contexts, and the rate that is fitted to its late half."""
    rows = []
    for gamma in (0.5, 0.9):
        for alpha in (0.5, 1.0):
            everything = [Tasks(task_of("one-hot", gamma), seed) for seed in SEEDS]
            deep = replace(star("one-hot", everything[0].mrp.features.shape[-1], alpha), num_layers=240)
            curves = np.mean([tasks.curve(deep) for tasks in everything], axis=0)
            late = [depth for depth in range(30, 241) if curves[depth] > 1e-26]
            slope = np.polyfit(late, np.log(curves[late]), 1)[0]
            radius = max(
                float(probe.spectral_radius(tasks.kernel(deep), gamma=gamma, w=deep.w[0]).max())
                for tasks in everything
            )
            rows.append(
                {
                    "gamma": gamma,
                    "alpha": alpha,
                    **{f"L = {depth}": number(curves[depth]) for depth in (1, 10, 30, 60, 120, 240)},
                    "fitted rate a layer": f"{np.exp(slope):.4f}",
                    "largest spectral radius squared": f"{radius**2:.4f}",
                    "(1 - alpha (1 - gamma))^2": f"{(1 - alpha * (1 - gamma)) ** 2:.4f}",
                }
            )
    return markdown(rows)


def finite() -> tuple[str, str]:
    """One-hot features, gamma .5: how often something else beats theta* over contexts of n transitions."""
    everything = [Tasks(task_of("one-hot", 0.5), seed) for seed in SEEDS]
    at = star("one-hot", everything[0].mrp.features.shape[-1], 1.0)
    rows, floors = [], []
    for n in LENGTHS:
        curve = np.mean([tasks.curve(at, n) for tasks in everything], axis=0)
        own = torch.tensor([tasks.neu(at, n) for tasks in everything])[:, None]
        floors.append(float(own.mean()))
        row: dict[str, object] = {"n": n} | {f"theta*, L = {k}": number(curve[k]) for k in (1, 3, 10, DEPTH)}
        found = torch.tensor(
            [[tasks.neu(w, n) for w in random_weights(tasks, at, signs="++-")] for tasks in everything]
        )
        row["random ++- below"] = share(found < own)
        for radius in RADII:
            found = torch.tensor(
                [
                    [tasks.neu(w, n) for w in _perturbed(tasks, at, radius=radius, kind="A and w")]
                    for tasks in everything
                ]
            )
            row[f"radius {radius:g} below"] = share(found < own)
        rows.append(row)
    slope = np.polyfit(np.log(LENGTHS), np.log(floors), 1)[0]
    return f"Slope of log NEU at L = {DEPTH} against log n: {slope:.2f}.", markdown(rows)


def finite_trained(found: list[tuple[str, int, Weights]]) -> str:
    """Sphere features: how often trained checkpoints beat theta* over contexts of n."""
    everything = [Tasks(task_of("sphere", 0.5), seed) for seed in SEEDS]
    stars = {
        f"c = {c:g}, L = {depth}": replace(
            star("sphere", 4, 1.0), A=c * torch.eye(4).double()[None], num_layers=depth
        )
        for c, depth in ((5.0, 10), (5.0, DEPTH), (1000.0, DEPTH))
    }
    last = [w for name, step, w in found if step == max(s for n, s, _ in found if n == name)]
    rows = []
    for n in (*LENGTHS, 0):
        own = {c: torch.tensor([tasks.neu(w, n) for tasks in everything]) for c, w in stars.items()}
        row: dict[str, object] = {"n": n or "endless"}
        row |= {f"theta*, {c}": number(float(x.mean())) for c, x in own.items()}
        for name, chosen in (("every checkpoint", [w for *_, w in found]), ("last checkpoints", last)):
            values = torch.tensor([[tasks.neu(w, n) for w in chosen] for tasks in everything])
            row[f"{name}: median NEU"] = number(float(values.median()))
            for c, x in own.items():
                row[f"{name} below {c}"] = share(values < x[:, None])
        rows.append(row)
    return markdown(rows)


def page(runs: Path) -> str:
    """Everything, in words and tables."""
    found = trained(runs)
    parts = [
        "# Is theta* where the expected update is least?",
        "Command: `python benchmarks/neu.py`, one thread. NEU is the `task` form: mean over tasks (and contexts) of "
        "|| D_mu (r + gamma P v - v) ||^2, the norm inside the average (our definition, theory A6); the source claims "
        "theta* a global minimiser in the limit n -> infinity, then L -> infinity. Boyan chains with 10 states, "
        f'{NUM_TASKS} tasks a seed, seeds 0-4, float64. "Endless contexts" use the population kernel (theory A4). '
        f"A difference of at most {ZERO:g} is a tie.",
        "## Identities on theta*",
        "Largest absolute error over sphere and one-hot features (c = 5, alpha = .8, 6 layers, n = 30), both forms.",
        markdown(identities()),
        "## Endless contexts, gamma .5, one-hot features",
        f"Perturbations: {DIRECTIONS} directions a seed, uniform on the unit sphere of (A, w), times the radius, in "
        f"units of the norms of A and of w; random weights: {RANDOM} a seed and kind, w ~ N(0, I) or with signs ++- "
        "and sizes U(0, 1) (most diverge), A normal with the norm of theta*'s A. Moving A alone or alpha alone leaves "
        "v_pi the fixed point, so these tie as long as the map still contracts fast enough, and are counted apart. "
        "(At radius 1 alpha alone is once 0, once 2 alpha.)",
    ]
    say("identities")
    for alpha in (0.5, 1.0):
        parts += population(alpha)
        say(f"population, alpha {alpha}")
    parts += [
        "## Trained checkpoints, endless contexts",
        "Every checkpoint of every restricted `tsm` run (seeds 0-4), untrained ones among them, on tasks like those it "
        "was trained on (unit sphere, d = 4), against theta* on the same tasks.",
        *checkpoints(found),
        "## Rate",
        "NEU of theta* against depth, one-hot features, c = 12, endless contexts; the rate is fitted from L = 30 on "
        "while NEU is above 1e-26. Theory: late errors shrink by the spectral radius a layer, so NEU by its square.",
        rates(),
        "## Where theta* is not the minimiser: finite contexts",
        "One-hot features, gamma .5, theta* with alpha = 1 and c = 12, compared on the same contexts (one a task) at "
        f"L = {DEPTH}.",
        *finite(),
        "Sphere features: trained checkpoints at their own depth against theta*. Sharp attention (c = 1000) is what "
        "endless contexts want; it does not generalise to states that a short context missed. Last checkpoints: "
        "tied, 10 layers, and untied, 3.",
        finite_trained(found),
    ]
    say("all")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/benchmark"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    started = time.process_time()
    text = page(asked.runs)
    seconds = time.process_time() - started
    target = Path(__file__).with_suffix(".md")
    target.write_text(f"{text}\nProcessor time: {seconds:.0f} s.\n", encoding="utf-8")


if __name__ == "__main__":
    main()
