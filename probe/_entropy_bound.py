"""What bounds the relaxed gap: the credit that a differentiable reward's costate lacks because tokens were sampled.

With B_{s,t} = dz_s / dh_{l,t} (tokens fixed), S_s = (diag p_s - p_s p_s') / temperature, E the embeddings of all tokens
and lambda_emb the relaxed total at the embedding of the token that s predicts,

    lambda_{l,t} - lambda_hat_{l,t} = sum_{s >= t} B_{s,t}' S_s E lambda_emb_{s+1}                  (identity)
    step:      |.| <= sum_s |B_{s,t}|_2 |S_s E lambda_emb_{s+1}|
    entropy:   |.| <= sum_s |B_{s,t}|_2 (min(gini_s, 1/2) / temperature) |E lambda_emb_{s+1} - mean|

since S_s takes no notice of a constant and lambda_max(diag p - pp') <= gini = 1 - sum p^2 <= entropy / (2 ln 2), and
<= 1/2. Neither says how large the gap is: look at the tightness, error / bound.

Shape legend: `batch` rollouts, `layer` those asked for, `state` k = 0..T-1 (`source` and `target` of a pair), `pos`
positions, `hop` sampled tokens that credit crossed, `vocabulary` tokens, `d_model` width of the residual stream.

Source: derived (theory B5).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import Module

from valuelens.probe._hops import Hops, drawn_from, vocabulary_products
from valuelens.probe._sequences import Sampling, Sequences
from valuelens.probe._shown import Measured
from valuelens.probe._token_scores import state_logits

BoundForm = Literal["step", "entropy"]

_ROUNDING = 1000
"""Epsilons of the costates' dtype, in units of their norm, by which an error may exceed its bound: it is a difference
of two costates."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RelaxedCredit(Measured):
    """Costates of a differentiable reward without and with what crosses sampled tokens, up to the same hop.

    Attributes:
        empirical: lambda_hat = lambda^(0).
        relaxed: lambda, the sum of hops 0..K.
        embeddings: lambda_emb of hops 0..K-1, at the embedding of the token that each state predicts.
        valid: Whether a rollout has the state.
    """

    empirical: Float[Tensor, "batch layer state d_model"]
    relaxed: Float[Tensor, "batch layer state d_model"]
    embeddings: Float[Tensor, "batch state d_model"]
    valid: Bool[Tensor, "batch state"]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Crossings(Measured):
    """What crosses the sampled token that each state predicts; 0 where there is none.

    Attributes:
        push: S_s E lambda_emb_{s+1}, on the logits at s.
        ceiling: (min(gini_s, 1/2) / temperature) |E lambda_emb_{s+1} - mean|, over the tokens that could be drawn.
    """

    push: Float[Tensor, "batch state vocabulary"]
    ceiling: Float[Tensor, "batch state"]

    @property
    def lengths(self) -> Float[Tensor, "batch state"]:
        """|S_s E lambda_emb_{s+1}|, at most the ceiling."""
        return self.push.square().sum(-1).sqrt()


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class EntropyBound(Measured):
    """The gap at each state and its bounds.

    Attributes:
        error: |lambda - lambda_hat|.
        step: Its bound from what really crosses each token.
        entropy: Its bound from the entropy of each token's distribution.
        rounding: What the error may owe to rounding.
        valid: Whether the state is there and was asked for.
    """

    error: Float[Tensor, "batch layer state"]
    step: Float[Tensor, "batch layer state"]
    entropy: Float[Tensor, "batch layer state"]
    rounding: Float[Tensor, "batch layer state"]
    valid: Bool[Tensor, "batch layer state"]

    def tightness(self, form: BoundForm) -> Float[Tensor, "batch layer state"]:
        """Error / bound, 1 if nothing is given away; NaN where the error may be rounding or there is no state.

        Args:
            form: Of the bound.
        """
        known = self.valid & (self.error > self.rounding)
        return torch.where(known, self.error / self._bound(form), torch.nan)

    def violations(self, form: BoundForm) -> Bool[Tensor, "batch layer state"]:
        """Where the error exceeds the bound by more than rounding explains.

        Args:
            form: Of the bound.
        """
        return self.valid & ~(self.error <= self._bound(form) + self.rounding)

    def _bound(self, form: BoundForm) -> Float[Tensor, "batch layer state"]:
        return self.step if form == "step" else self.entropy


def relaxed_credit(hops: Hops, sequences: Sequences) -> RelaxedCredit:
    """What a bound needs of credit by hop; if hops were left out, of the sum of those that are there.

    Args:
        hops: Of one micro-batch.
        sequences: The same rollouts.
    """
    sequences = sequences.to(hops.embeddings.device)
    sent = hops.embeddings[:, :-1].sum(1)
    tokens = (sequences.states + 1).clamp(max=sent.shape[1] - 1)[..., None]
    return RelaxedCredit(
        empirical=hops.values[:, 0],
        relaxed=hops.relaxed,
        embeddings=sent.gather(1, tokens.expand(-1, -1, sent.shape[-1])) * hops.valid[..., None],
        valid=hops.valid,
    )


def gini(probabilities: Float[Tensor, "*batch vocabulary"]) -> Float[Tensor, "*batch"]:
    """1 - sum p^2, the trace of diag p - pp': how likely two draws differ. At most entropy / (2 ln 2).

    Args:
        probabilities: Of one distribution a row.

    Example:
        >>> gini(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
        tensor([0.0000, 0.5000])
    """
    return (1 - probabilities.square().sum(-1)).clamp(min=0)


def spectral_ceiling(probabilities: Float[Tensor, "*batch vocabulary"]) -> Float[Tensor, "*batch"]:
    """min(gini, 1/2) >= lambda_max(diag p - pp'): the trace, or Gershgorin's discs, of which p_i (1 - p_i) is half.

    Args:
        probabilities: Of one distribution a row.

    Example:
        >>> spectral_ceiling(torch.full((4,), 0.25))
        tensor(0.5000)
    """
    return gini(probabilities).clamp(max=0.5)


def crossings(
    model: Module,
    sequences: Sequences,
    embeddings: Float[Tensor, "batch state d_model"],
    sampling: Sampling | None = None,
) -> Crossings:
    """What the credit at the embeddings of sampled tokens becomes at the logits that they were drawn from.

    Args:
        model: A causal language model as those of transformers, in evaluation mode.
        sequences: Prompts and completions of one micro-batch.
        embeddings: Of `RelaxedCredit`.
        sampling: How the tokens were drawn.
    """
    sampling = sampling or Sampling()
    sequences = sequences.to(next(model.parameters()).device)
    with torch.no_grad():
        p = drawn_from(state_logits(model, sequences), sampling)
        u = vocabulary_products(model.get_input_embeddings(), embeddings.to(p), p.shape[-1])  # type: ignore[operator]
        push = p * (u - (p * u).sum(-1, keepdim=True)) / sampling.temperature
        drawable = p > 0
        mean = (u * drawable).sum(-1, keepdim=True) / drawable.sum(-1, keepdim=True)
        spread = torch.where(drawable, u - mean, 0.0).norm(dim=-1)
        ceiling = spectral_ceiling(p) / sampling.temperature * spread
        valid = sequences.valid
        return Crossings(
            push=torch.where(valid[..., None], push, 0.0), ceiling=torch.where(valid, ceiling, 0.0)
        )


def crossed(
    jacobians: Float[Tensor, "batch layer target source vocabulary d_model"], crossings: Crossings
) -> Float[Tensor, "batch layer source d_model"]:
    """sum_s B_{s,t}' S_s E lambda_emb_{s+1}, which is lambda - lambda_hat: the identity.

    Args:
        jacobians: Of `dense_jacobians`.
        crossings: Of the same micro-batch.
    """
    return einsum(
        jacobians,
        crossings.push.to(jacobians),
        "batch layer target source vocabulary d, batch target vocabulary -> batch layer source d",
    )


def entropy_bound(
    credit: RelaxedCredit,
    crossings: Crossings,
    norms: Float[Tensor, "batch layer target source"],
    *,
    asked: Bool[Tensor, "batch layer state"] | None = None,
) -> EntropyBound:
    """The gap beside both forms of its bound.

    Args:
        credit: Costates with and without what crosses sampled tokens.
        crossings: Of the same rollouts.
        norms: |B_{s,t}|_2, 0 where there is no pair. From power iteration they are lower bounds, and so the two forms
            are estimates.
        asked: States whose norms are there; all if not given.

    Example:
        >>> one, zero = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1)
        >>> credit = RelaxedCredit(
        ...     empirical=zero, relaxed=one, embeddings=one[0], valid=torch.ones(1, 1, dtype=torch.bool))
        >>> found = entropy_bound(credit, Crossings(push=one[0], ceiling=2 * one[0, 0]), 2 * one)
        >>> found.tightness("step").item(), found.tightness("entropy").item()
        (0.5, 0.25)
    """
    relaxed, empirical = credit.relaxed.double(), credit.empirical.double()
    wide = norms.to(relaxed)
    step, entropy = (
        einsum(wide, each.double(), "batch layer target source, batch target -> batch layer source")
        for each in (crossings.lengths, crossings.ceiling)
    )
    epsilon = torch.finfo(credit.relaxed.dtype).eps
    return EntropyBound(
        error=(relaxed - empirical).norm(dim=-1),
        step=step,
        entropy=entropy,
        rounding=_ROUNDING * epsilon * (relaxed.norm(dim=-1) + empirical.norm(dim=-1)),
        valid=credit.valid[:, None].expand(step.shape)
        if asked is None
        else credit.valid[:, None] & asked.to(credit.valid.device),
    )


def one_step_bound(
    pushes: Float[Tensor, "batch time"], rho: Float[Tensor, " batch"]
) -> Float[Tensor, "batch time"]:
    """sum_{k >= t} rho^{k-t} |push_k|: the textbook form, for systems whose paths go through every state in between.

    For a transformer it is false, because attention skips steps (theory B5): use `entropy_bound` there.

    Args:
        pushes: |the part of lambda_k that comes through the action at k, alone|.
        rho: Discount times the largest spectral norm of a one-step Jacobian with the actions fixed.

    Example:
        >>> one_step_bound(torch.tensor([[0.0, 1.0, 4.0]]), torch.tensor([0.5]))
        tensor([[1.5000, 3.0000, 4.0000]])
    """
    bounds = [torch.zeros_like(rho)]
    for push in pushes.flip(1).unbind(1):
        bounds.append(push + rho * bounds[-1])
    return torch.stack(bounds[:0:-1], dim=1)
