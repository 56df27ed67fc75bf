"""Distance of softmax-TD weights to the *set* of theta*: every weight that theta* may have without changing it.

Free are: alpha > 0 (scale of V), c > 0 (A = c I), the softmax gauge (A + u0 u' where u0'x is constant over sources)
and the scale of a free target slot. All are fixed before anything is compared (theory A8, derived).

Shape legend: `layer`; `D` = d+3 slots: features, reward, target memory, current memory; A and V in the papers'
orientation (g(dest, src) = z_src' A z_dest; V acts on columns). Entries that have no effect on the read-out are
marked by boolean masks `identified_A`, `identified_V` and left out of everything.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from valuelens.probe._shown import Measured

_TD = (1.0, 1.0, -1.0)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ThetaStarDistance(Measured):
    """How far each layer's weights are from theta*; NaN where nothing is identified.

    Attributes:
        w: (w_R, w_T, w_C), the row of V into current memory, target slot rescaled.
        w_identified: Which of the three have an effect.
        step_size: alpha = mean of (w_R, w_T, -w_C) over the identified ones.
        weight_cosine: Cosine of w with (1, 1, -1); blind to the effective discount.
        effective_discount: gamma w_T / |w_C|.
        reward_scale: w_R / |w_C|.
        sharpness: c = tr(Pi A) / tr(Pi).
        attention_residual: ||Pi A / c - Pi||_F / sqrt(tr Pi); NaN unless c > 0.
        off_support_A: Mean |entry| of Pi A / c off the diagonal feature block; NaN unless c > 0.
        off_support_V: Mean |entry| of V / alpha outside w; NaN unless alpha > 0.
        frobenius: ||(A, V) - theta*(1, 1)||_F, raw, so it moves with every gauge.
        target_scale: s of a free target slot; 1 without a target head.
        identified_A, identified_V: The masks that were used.
        target_residual: Relative misfit of the target head's row to s times the current head's; NaN without one.
    """

    w: Float[Tensor, "layer 3"]
    w_identified: Bool[Tensor, "layer 3"]
    step_size: Float[Tensor, "layer"]
    weight_cosine: Float[Tensor, "layer"]
    effective_discount: Float[Tensor, "layer"]
    reward_scale: Float[Tensor, "layer"]
    sharpness: Float[Tensor, "layer"]
    attention_residual: Float[Tensor, "layer"]
    off_support_A: Float[Tensor, "layer"]
    off_support_V: Float[Tensor, "layer"]
    frobenius: Float[Tensor, "layer"]
    target_scale: float
    target_residual: Float[Tensor, "layer"]
    identified_A: Bool[Tensor, "layer D D"]
    identified_V: Bool[Tensor, "layer D D"]

    @property
    def sign_pattern(self) -> tuple[str, ...]:
        """Signs of (w_R, w_T, w_C) for each layer, `++-` for TD; `unidentified` if one of them is."""
        return tuple(
            "".join("+" if value > 0 else "-" if value < 0 else "0" for value in w.tolist())
            if bool(known.all())
            else "unidentified"
            for w, known in zip(self.w, self.w_identified, strict=True)
        )


def softmax_gauge(features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "feature"] | None:
    """u0 with u0'x = 1 for every feature vector, or none: the direction that softmax cannot see.

    One-hot features have u0 = (1, ..., 1); features in general position have none.

    Args:
        features: All feature vectors that a model may meet (a large sample of them).

    Example:
        >>> softmax_gauge(torch.eye(3)).round(decimals=4)
        tensor([1., 1., 1.])
    """
    rows = features.reshape(-1, features.shape[-1]).double()
    ones = rows.new_ones(len(rows), 1)
    u0: Tensor = torch.linalg.lstsq(rows, ones, driver="gelsd").solution[:, 0]
    exact = bool(((rows @ u0 - 1).abs() < 1e-6).all())
    return u0.to(features.dtype) if exact and len(rows) > 1 else None


def theta_star_distance(
    A: Float[Tensor, "layer D D"],
    V: Float[Tensor, "layer D D"],
    *,
    gamma: float,
    V_target: Float[Tensor, "layer D D"] | None = None,
    gauge: Float[Tensor, "feature"] | None = None,
    identified: tuple[Bool[Tensor, "layer D D"], Bool[Tensor, "layer D D"]] | None = None,
) -> ThetaStarDistance:
    """Compare layers with theta*(alpha, c), after fixing what is not identified.

    Args:
        A: Merged key-query matrices.
        V: Value-output matrices of the current-value head.
        gamma: Discount.
        V_target: Of the target-value head, if free.
        gauge: u0 from `softmax_gauge`.
        identified: Masks of A and V; everything counts if absent.

    Source: arXiv 2605.07333 for theta*; the gauges are derived (theory A8). The target scale is fitted on the
    reward and current entries only, which makes every other number exactly invariant under it.
    """
    everything = torch.ones_like(A, dtype=torch.bool)
    known_A, known_V = identified if identified is not None else (everything, everything)
    rows, known = V[:, -1, -3:], known_V[:, -1, -3:]
    scale, misfit = _target_scale(rows, V_target, known)
    w = rows * rows.new_tensor([1.0, scale, 1.0])
    step = _masked_mean(w * w.new_tensor(_TD), known)
    c, residual, off_A = _attention(A, gauge, known_A)
    known_off = known_V.clone()
    known_off[:, -1, -3:] = False
    off_V = _masked_mean(V.abs(), known_off) / torch.where(step > 0, step, torch.nan)
    return ThetaStarDistance(
        w=torch.where(known, w, torch.nan),
        w_identified=known,
        step_size=step,
        weight_cosine=_cosine(w, known),
        effective_discount=gamma * _where(w[:, 1] / w[:, 2].abs(), known[:, 1] & known[:, 2]),
        reward_scale=_where(w[:, 0] / w[:, 2].abs(), known[:, 0] & known[:, 2]),
        sharpness=c,
        attention_residual=residual,
        off_support_A=off_A,
        off_support_V=off_V,
        frobenius=_frobenius(A, V, known_A, known_V),
        target_scale=scale,
        target_residual=misfit,
        identified_A=known_A,
        identified_V=known_V,
    )


def functional_distance(
    values: Float[Tensor, "layer batch pos"], reference: Float[Tensor, "layer batch pos"]
) -> Float[Tensor, "layer"]:
    """rms over columns of (values - reference) / rms of values, for each layer (theory A8).

    Args:
        values: Current memory of the model.
        reference: Iterates of the rule, from the same start.
    """
    difference = (values - reference).square().mean((1, 2)).sqrt()
    return difference / values.square().mean((1, 2)).sqrt()


def _attention(A: Tensor, gauge: Tensor | None, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    d = A.shape[-1] - 3
    Pi = torch.eye(d, dtype=A.dtype, device=A.device)
    if gauge is not None:
        Pi = Pi - torch.outer(gauge, gauge) / gauge.square().sum()
    target = torch.nn.functional.pad(Pi, (0, 3, 0, 3))
    projected = torch.cat([Pi @ A[:, :d], A[:, d:]], dim=1)
    c = projected.diagonal(dim1=-2, dim2=-1)[:, :d].sum(-1) / Pi.trace()
    scaled = projected / torch.where(c > 0, c, torch.nan)[:, None, None]
    misfit = torch.where(known, scaled - target, 0)
    on_support = torch.nn.functional.pad(torch.eye(d, dtype=torch.bool, device=A.device), (0, 3, 0, 3))
    off = _masked_mean(misfit.abs(), known & ~on_support)
    return c, misfit.square().sum((-2, -1)).sqrt() / Pi.trace().sqrt(), off


def _target_scale(rows: Tensor, V_target: Tensor | None, known: Tensor) -> tuple[float, Tensor]:
    nan = rows.new_full((len(rows),), torch.nan)
    if V_target is None:
        return 1.0, nan
    targets = V_target[:, -2, -3:]
    fitted = known.clone()
    fitted[:, 1] = False
    fitted[-1] = False  # the last layer's target head is never read
    current, target = rows[fitted], targets[fitted]
    scale = float((current * target).sum() / current.square().sum()) if len(current) else 1.0
    if scale == 0 or not torch.isfinite(torch.tensor(scale)):
        return 1.0, nan
    w = rows * rows.new_tensor([1.0, scale, 1.0])
    moved = targets * targets.new_tensor([1 / scale, 1.0, 1 / scale])
    difference = torch.where(known, moved - w, 0).square().sum(-1).sqrt()
    misfit = difference / torch.where(known, w, 0).square().sum(-1).sqrt()
    misfit[-1] = torch.nan
    return scale, misfit


def _cosine(w: Tensor, known: Tensor) -> Tensor:
    direction = w.new_tensor(_TD).expand_as(w)
    cosine = torch.nn.functional.cosine_similarity(w, direction, dim=-1)
    return _where(cosine, known.all(-1))


def _frobenius(A: Tensor, V: Tensor, known_A: Tensor, known_V: Tensor) -> Tensor:
    d = A.shape[-1] - 3
    star_A, star_V = torch.zeros_like(A), torch.zeros_like(V)
    star_A[:, range(d), range(d)] = 1
    star_V[:, -1, -3:] = V.new_tensor(_TD)
    squares = torch.where(known_A, A - star_A, 0).square() + torch.where(known_V, V - star_V, 0).square()
    return squares.sum((-2, -1)).sqrt()


def _masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    axes = tuple(range(1, x.ndim))
    return torch.where(mask, x, 0).sum(axes) / mask.sum(axes)


def _where(x: Tensor, known: Tensor) -> Tensor:
    return torch.where(known, x, torch.nan)
