"""Tasks, weights and perturbations of `neu.py`: restricted softmax TD over contexts of any length."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from valuelens import probe
from valuelens.models import icrl

NUM_TASKS, DEPTH = 64, 60
EVALUATION = 1_000_000
"""Added to seeds: no stream of a training run."""
DIRECTIONS, RANDOM = 100, 200
LENGTHS = (30, 100, 300, 1000, 3000)
SHARP = {"one-hot": 12.0, "sphere": 1000.0}
"""c of theta*, large enough for Assumption 5.1 at gamma .5 (the page counts where it fails)."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A (feature block) and w of a restricted model: one layer for all, or one each."""

    A: Tensor
    w: Tensor
    num_layers: int = DEPTH

    def moved(self, radius: float, direction: tuple[Tensor, Tensor]) -> "Weights":
        """Moved by `radius` in units of the norms of A and of w."""
        A, w = direction
        return replace(self, A=self.A + radius * self.A.norm() * A, w=self.w + radius * self.w.norm() * w)


def star(features: str, feature_dim: int, alpha: float) -> Weights:
    """theta* at the sharpness of its features."""
    eye = torch.eye(feature_dim, dtype=torch.float64)
    return Weights(A=SHARP[features] * eye[None], w=alpha * probe.TD_WEIGHTS[None])


class Tasks:
    """The tasks of one seed, with endless contexts (n = 0) and the beginnings of one long trajectory each."""

    def __init__(self, task: icrl.TaskConfig, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(EVALUATION + seed)
        sampler = icrl.task_sampler(task, self.generator)
        mrp, states = sampler.sample(NUM_TASKS, max(LENGTHS), self.generator, torch.float64)
        self.mrp, self.mu, self.states = mrp, mrp.stationary, states
        starts = {n: icrl.context_statistics(mrp, states[:, : n + 1]) for n in LENGTHS}
        self.contexts = starts | {0: icrl.population_statistics(mrp)}

    def neu(self, weights: Weights, n: int = 0) -> float:
        """Mean over tasks after the last layer; infinite where the values overflow."""
        last = self._mean(self._values(weights, n)[-1])
        return last if np.isfinite(last) else np.inf

    def curve(self, weights: Weights, n: int = 0) -> list[float]:
        """Mean over tasks at every depth."""
        return [self._mean(values) for values in self._values(weights, n)]

    def _values(self, weights: Weights, n: int) -> Tensor:
        return icrl.state_form_iterates(
            weights.A, weights.w, self.contexts[n], gamma=self.mrp.gamma, num_layers=weights.num_layers
        )

    def _mean(self, values: Tensor) -> float:
        mrp = self.mrp
        return float(probe.neu(values, mrp.P, mrp.r, self.mu, mrp.gamma).mean())

    def kernel(self, weights: Weights) -> probe.StateKernel:
        """The first layer's map for endless contexts."""
        x = self.mrp.features
        scores = probe.bilinear_scores(x, x, weights.A[0])
        return probe.population_state_kernel(scores, self.mrp.P, self.mrp.r, self.mu)


def task_of(features: str, gamma: float) -> icrl.TaskConfig:
    """The default task with other features or another discount."""
    return icrl.run_config({"task": {"features": features, "gamma": gamma}}, where="benchmark").task


def directions(tasks: Tasks, like: Weights, kind: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Uniform on the unit sphere of (A, w), or of A alone; both ways along alpha alone."""
    if kind == "alpha":
        for sign in (1, -1):
            yield torch.zeros_like(like.A), sign * like.w / like.w.norm()
        return
    for _ in range(DIRECTIONS):
        A, w = (torch.randn(x.shape, generator=tasks.generator, dtype=x.dtype) for x in (like.A, like.w))
        w = w * 0 if kind == "A" else w
        norm = (A.square().sum() + w.square().sum()).sqrt()
        yield A / norm, w / norm


def random_weights(tasks: Tasks, like: Weights, *, signs: str) -> Iterator[Weights]:
    """w ~ N(0, I), or with signs ++- and sizes U(0, 1); A normal with the Frobenius norm of theta*'s in expectation."""
    scale = float(like.A.norm()) / like.A.shape[-1]
    for _ in range(RANDOM):
        A, w = (torch.randn(x.shape, generator=tasks.generator, dtype=x.dtype) for x in (like.A, like.w))
        if signs == "++-":
            w = probe.TD_WEIGHTS * torch.rand(w.shape, generator=tasks.generator, dtype=w.dtype)
        yield replace(like, A=scale * A, w=w)


def trained(runs: Path) -> list[tuple[str, int, Weights]]:
    """Every checkpoint of the restricted tsm runs: its run, its step and its weights."""
    found = []
    for run in sorted(runs.glob("tsm-restricted-*/seed-*")):
        for each in icrl.checkpoint_paths(run):
            model = icrl.load(each.path).double()
            assert isinstance(model, icrl.SoftmaxTD)
            weights = Weights(
                A=model.A_features.detach(), w=model.get_parameter("w").detach(), num_layers=model.num_layers
            )
            found.append((f"{run.parent.name}/{run.name}", each.step, weights))
    return found
