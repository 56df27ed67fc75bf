"""Linear probes: what a residual stream shows of quantities that a rule would have to keep there (theory A9 iii).

Shape legend: `batch` contexts, `pos` their columns, `D` width of a stream, `target` quantities, one number a column,
`fold` parts of the contexts, each held out once.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, cross_val_predict
from torch import Tensor

from valuelens.probe._shown import Measured

RIDGES = tuple(10.0**power for power in (-9, -6, -3, -1))
"""Penalties among which the inner folds choose, in units of the mean variance of a coordinate of the stream."""

_OUTER, _INNER = 5, 3

_Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Decoding(Measured):
    """Probes of several targets from one stream.

    Attributes:
        predicted: By probes that never saw the context, of each target.
        fold: Which outer fold held a context out.
        inner_r2: R^2 within the training contexts of each outer fold, at the penalty chosen there: what a choice
            among targets may look at.
        weights: Of probes on all contexts; a target is decoded as stream @ weights + intercept.
        intercept: Of the same probes.
    """

    predicted: Float[Tensor, "batch pos target"]
    fold: Int[Tensor, "batch"]
    inner_r2: Float[Tensor, "fold target"]
    weights: Float[Tensor, "target D"]
    intercept: Float[Tensor, "target"]


def decode(stream: Float[Tensor, "batch pos D"], targets: Float[Tensor, "batch pos target"]) -> Decoding:
    """Ridge probes by nested cross-validation, contexts kept whole in both layers of it.

    Outer folds over contexts score a probe on contexts that it never saw; inner folds over the remaining contexts
    choose its penalty, for each target its own. Penalties are rotation-invariant: one unit for all coordinates.

    Args:
        stream: Outputs of one hook.
        targets: What is looked for, at the same columns.

    Raises:
        ValueError: There are fewer than five contexts.
    """
    batch, pos, _ = stream.shape
    if batch < _OUTER:
        raise ValueError(f"nested cross-validation needs at least {_OUTER} contexts; found {batch}; decode")
    X, Y = (_rows(each) for each in (stream, targets))
    groups = np.repeat(np.arange(batch), pos)
    predicted, fold = np.empty_like(Y), np.empty(batch, dtype=np.int64)
    inner, penalties = [], []
    for number, (train, test) in enumerate(GroupKFold(_OUTER).split(X, Y, groups)):
        penalty, r2 = _chosen(X[train], Y[train], groups[train])
        predicted[test] = _fitted(X[train], Y[train], penalty).predict(X[test]).reshape(len(test), -1)
        fold[groups[test]] = number
        inner.append(r2)
        penalties.append(penalty)
    whole = _fitted(X, Y, np.exp(np.median(np.log(penalties), axis=0)))
    return Decoding(
        predicted=torch.from_numpy(predicted).to(targets).reshape(targets.shape),
        fold=torch.from_numpy(fold),
        inner_r2=torch.from_numpy(np.stack(inner)).to(targets),
        weights=torch.from_numpy(np.atleast_2d(whole.coef_)).to(targets),
        intercept=torch.from_numpy(np.atleast_1d(whole.intercept_)).to(targets),
    )


def decoding_sums(
    predicted: Float[Tensor, "batch pos"], target: Float[Tensor, "batch pos"]
) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]:
    """Residual and total sums of squares of each context; R^2 = 1 - sum / sum. The total is about the grand mean.

    Args:
        predicted: Decoded values.
        target: What they should be.
    """
    residual, total = predicted - target, target - target.mean()
    return residual.square().sum(-1), total.square().sum(-1)


def patch_directions(
    stream: Float[Tensor, "batch pos D"], weights: Float[Tensor, "target D"]
) -> Float[Tensor, "target D"]:
    """For each target the change of a stream that raises its decoded value by 1 and leaves the others' as they are.

    A probe's weights w say how to read a value, not how the stream moves when the value does: any change with
    w'change = 1 would pass for one, most of them far from what the network ever sees. We take the change of least
    Mahalanobis norm, Sigma W' (W Sigma W')^{-1}, Sigma the covariance of the stream over columns: the regression of
    the stream on the decoded values, in which every value moves while the others stay. For one target alone it is
    Sigma w / w'Sigma w, the direction in which the stream varies with the value; the further targets (rewards,
    features, ...) keep what merely goes together with the value from moving too. Unlike the weights, it does not
    depend on the coordinates of the stream. Our definition.

    Args:
        stream: Where the probes were fitted.
        weights: Of probes, at most D of them.

    Raises:
        ValueError: The decoded value of a target never varies.

    Example:
        >>> stream = torch.randn(4, 50, 3, generator=torch.Generator().manual_seed(0))
        >>> weights = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> torch.testing.assert_close(weights @ patch_directions(stream, weights).mT, torch.eye(2))
    """
    rows = stream.flatten(0, 1)
    covariance = (rows - rows.mean(0)).mT @ (rows - rows.mean(0)) / len(rows)
    shared = weights @ covariance
    scale = (shared * weights).sum(-1).clamp(min=0).sqrt()
    if not bool((scale > 0).all()):
        found = f"found target {int((scale == 0).nonzero()[0])} constant"
        raise ValueError(f"decoded values must vary; {found}; patch_directions")
    correlation = shared @ weights.mT / scale / scale[:, None]
    solution: Tensor = torch.linalg.solve(correlation, shared / scale[:, None])
    return solution / scale[:, None]


def overlap(
    pattern: Float[Tensor, "*batch query key"], kernel: Float[Tensor, "*batch query key"]
) -> Float[Tensor, "*batch"]:
    """Shared attention of two patterns, sum_k min(p_k, q_k), mean over destinations: 1 minus total variation.

    Args:
        pattern: Attention on sources, rows that sum to 1.
        kernel: The same of another.

    Example:
        >>> overlap(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.25, 0.75]]))
        tensor(0.2500)
    """
    return torch.minimum(pattern, kernel).sum(-1).mean(-1)


def _chosen(X: _Matrix, Y: _Matrix, groups: NDArray[np.int64]) -> tuple[_Matrix, _Matrix]:
    """For each target the penalty of least error on inner folds, and the R^2 there."""
    errors = []
    for ridge in RIDGES:
        model = Ridge(alpha=ridge * _unit(X))
        predicted = cross_val_predict(model, X, Y, groups=groups, cv=GroupKFold(_INNER))
        errors.append(np.square(predicted.reshape(Y.shape) - Y).sum(0))
    best = np.argmin(errors, axis=0)
    total = np.square(Y - Y.mean(0)).sum(0)
    least: _Matrix = np.min(errors, axis=0)
    r2 = np.where(total > 0, 1 - least / np.where(total > 0, total, 1), 0.0)
    return np.asarray(RIDGES)[best], r2


def _fitted(X: _Matrix, Y: _Matrix, penalty: _Matrix) -> Ridge:
    return Ridge(alpha=penalty * _unit(X)).fit(X, Y)


def _unit(X: _Matrix) -> float:
    """Rows times the mean variance of a coordinate."""
    return float(X.var(0).mean() * len(X)) or 1.0


def _rows(tensor: Tensor) -> _Matrix:
    rows: _Matrix = tensor.detach().double().cpu().flatten(0, 1).numpy()
    return rows
