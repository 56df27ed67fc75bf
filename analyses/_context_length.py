"""What more context gives: errors against n, their slope, and the fixed point of the weights in endless contexts.

Shape legend: `length` context lengths, `batch` tasks, `state` S, `band` mean and interval.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from valuelens.analyses._result import Array, Control, Finding, Result
from valuelens.analyses._rule import Rule, tabular_kernel, trajectories
from valuelens.analyses._subject import FEW, Subject, band, first_tasks, mean_square_ratio
from valuelens.models.icrl import MarkovRewardProcess, Transformer, context_of
from valuelens.probe import fixed_point, floor_slope, floor_slope_interval, sup_distance

_FACTORS = (0.5, 1, 2, 4, 10, 33, 100)
_LONG, _SHORT = 3000, 300
"""Longest contexts: in state form, and through a prompt, where a layer costs n x n."""
_READ = 48
"""Tasks that are read through prompts."""
_STREAM = 0x6E
_COVERED = 8
"""Contexts that visit every state, below which a mean over them is not told."""
_CHAIN = "value of the empirical chain"
_TOO_FEW = f"fewer than {_COVERED} contexts visit every state at that length, or the values overflow"
_NO_SLOPE = f"needs two lengths at which at least {_COVERED} contexts visit every state"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scan:
    """Errors on fresh trajectories of the subject's tasks; each length is the beginning of one long trajectory.

    Attributes:
        lengths: n.
        own: Distance of the model's values to v_pi, largest over the states that the context leaves.
        limit: Their distance to the model's own values in endless contexts; NaN where these are not known.
        chain: Distance of the value of the empirical chain to v_pi: theta* at infinite depth.
        covered: The context leaves every state.
    """

    lengths: Float[Tensor, "length"]
    own: Float[Tensor, "length batch"]
    limit: Float[Tensor, "length batch"]
    chain: Float[Tensor, "length batch"]
    covered: Bool[Tensor, "length batch"]


def context_lengths(subject: Subject, rule: Rule | None) -> Result:
    """Errors against n over contexts that visit every state and over all, beside those of the empirical chain.

    Args:
        subject: Any model; with a rule it is read in state form, so that long contexts cost little.
        rule: Its update over states, if there is one.
    """
    scan = _scan(subject, rule)
    everything = torch.ones_like(scan.covered)
    findings = [
        _errors(scan, "that visit every state", scan.covered),
        _errors(scan, "whatever they visit", everything),
        _slope(subject, scan, "true value", scan.own),
    ]
    if bool(scan.limit.isfinite().all()):
        findings.append(_slope(subject, scan, "limit of its own values in endless contexts", scan.limit))
    curves = {
        "context_error": (scan.own, everything),
        "context_error_covered": (scan.own, scan.covered),
        "context_chain_covered": (scan.chain, scan.covered),
        "context_limit_covered": (scan.limit, scan.covered),
    }
    arrays = {
        "context_lengths": Array(axes="length", values=scan.lengths),
        "context_covered": Array(axes="length", values=scan.covered.sum(1)),
    } | {
        name: Array(axes="band length", values=_bands(errors, kept, subject.seed))
        for name, (errors, kept) in curves.items()
    }
    return Result(kind="in-context-rl", findings=tuple(findings), arrays=arrays)


def fixed_point_errors(subject: Subject, rule: Rule) -> list[Finding]:
    """What the fitted w converge to in endless contexts, against v_pi: the effective discount's own error.

    Weighted by the stationary distribution, as mean squared error / mean squared true value (our definition). At
    w = alpha (1, 1, -1) it is zero for every kernel.

    Args:
        subject: Whose tasks.
        rule: Its update over states.
    """
    kernels, mu, truth = rule.kernels(subject.mrp), subject.mrp.stationary, subject.mrp.value
    square = (mu * truth.square()).sum(-1)
    findings = []
    for index, layer in rule.layers:
        own, exact = (
            (mu * (fixed_point(kernels[layer], gamma=rule.gamma, w=w) - truth).square()).sum(-1)
            for w in (rule.w[layer], rule.w.new_tensor([1.0, 1.0, -1.0]))
        )
        estimate, interval = mean_square_ratio(own, square, subject.seed)
        findings.append(
            Finding(
                name="fixed_point_error",
                estimate=estimate,
                unit="mean squared true value",
                n=subject.num_tasks,
                definition="choice",
                index=index,
                interval=interval,
                control=Control(name="w = (1, 1, -1)", estimate=float(exact.sum() / square.sum())),
                reasons={} if interval else {"interval": FEW},
            )
        )
    return findings


def _scan(subject: Subject, rule: Rule | None) -> _Scan:
    mrp = subject.mrp if rule is not None else first_tasks(subject.mrp, _READ)
    lengths = _lengths(subject, _SHORT if rule is None else _LONG)
    states = trajectories(subject, max(lengths), _STREAM)[: len(mrp.r)]
    truth, rows = mrp.value, []
    endless = None if rule is None else rule.iterates(rule.kernels(mrp))[-1]
    for n in lengths:
        path = states[:, : n + 1]
        chain = tabular_kernel(mrp, path)
        own = _read(subject, mrp, path) if rule is None else rule.iterates(rule.kernels(mrp, path))[-1]
        targets = (truth, torch.full_like(truth, torch.nan) if endless is None else endless)
        rows.append(
            (
                *(sup_distance(own, target, chain.visited) for target in targets),
                sup_distance(fixed_point(chain, gamma=mrp.gamma), truth, chain.visited),
                chain.visited.all(-1),
            )
        )
    own, limit, floor, covered = (torch.stack(column) for column in zip(*rows, strict=True))
    return _Scan(
        lengths=torch.tensor(lengths, dtype=truth.dtype), own=own, limit=limit, chain=floor, covered=covered
    )


def _lengths(subject: Subject, longest: int) -> list[int]:
    n, model = subject.context.num_transitions, subject.model
    positions = getattr(model, "W_pos", None) if isinstance(model, Transformer) else None
    most = max(n, longest) if positions is None else min(longest, len(positions) - 1)
    return sorted({m for factor in _FACTORS if 1 <= (m := round(factor * n)) <= most})


def _read(
    subject: Subject, mrp: MarkovRewardProcess, states: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch state"]:
    """The model's values of all states, through extra query columns."""
    with torch.no_grad():
        return subject.model.values(context_of(mrp, states), mrp.features)


def _errors(scan: _Scan, contexts: str, kept: Tensor) -> Finding:
    own, chain = (_means(errors, kept) for errors in (scan.own, scan.chain))
    reasons = {"interval": "one for each length: bands of the figure and of the arrays"}
    reasons |= {key: _TOO_FEW for key, x in (("estimate", own), ("control", chain)) if not _finite(x)}
    return Finding(
        name="context_error",
        estimate=list(own.tolist()),
        unit="value",
        n=scan.own.shape[1],
        definition="choice",
        index={"contexts": contexts, "lengths": ", ".join(f"{int(n)}" for n in scan.lengths)},
        control=Control(name=_CHAIN, estimate=list(chain.tolist())),
        reasons=reasons,
    )


def _slope(subject: Subject, scan: _Scan, reference: str, errors: Tensor) -> Finding:
    own, chain = (floor_slope(x, scan.lengths, scan.covered) for x in (errors, scan.chain))
    interval = floor_slope_interval(errors, scan.lengths, scan.covered, seed=subject.seed)
    reasons = {} if interval else {"interval": FEW}
    reasons |= {key: _NO_SLOPE for key, x in (("estimate", own), ("control", chain)) if x != x}
    return Finding(
        name="floor_slope",
        estimate=own,
        unit="1",
        n=int(scan.covered.any(0).sum()),
        definition="choice",
        index={"reference": reference},
        interval=interval,
        control=Control(name=_CHAIN, estimate=chain),
        reasons=reasons,
    )


def _means(errors: Tensor, kept: Tensor) -> Tensor:
    count = kept.sum(1)
    return (errors.where(kept, 0).sum(1) / count).where(count >= min(_COVERED, kept.shape[1]), torch.nan)


def _finite(x: Tensor) -> bool:
    return bool(x.isfinite().all())


def _bands(errors: Tensor, kept: Tensor, seed: int) -> Float[Tensor, "3 length"]:
    columns = [
        band(row[mask][None], seed=seed) if int(mask.sum()) >= _COVERED else row.new_full((3, 1), torch.nan)
        for row, mask in zip(errors, kept, strict=True)
    ]
    return torch.cat(columns, dim=1)
