"""What value signal does the backward pass of an RL update carry, and how noisy is it?"""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace

import torch

from valuelens.analyses._costate_config import CostateConfig, chosen_layers
from valuelens.analyses._costate_findings import (
    locality_findings,
    norm_findings,
    objective_finding,
    positions_table,
    signal_findings,
)
from valuelens.analyses._costate_hops import hops
from valuelens.analyses._costate_measures import Measured, Request, measured
from valuelens.analyses._costate_oracle import can_enumerate, oracle
from valuelens.analyses._costate_verdict import costate_verdict
from valuelens.analyses._diagnosis import Diagnosis, diagnosis, refuse_other_policy
from valuelens.analyses._entropy_bound import entropy_bound
from valuelens.analyses._group_means import Starts, group_means
from valuelens.analyses._head_credit import head_credit
from valuelens.analyses._request import Progress, blamed
from valuelens.analyses._result import Array, Result, merged
from valuelens.analyses._token_weights import TokenWeights, target_probability, token_weights
from valuelens.models import InputError
from valuelens.models.lm import LanguageModel, Rollouts, Task
from valuelens.probe import (
    Objective,
    Relaxation,
    Sequences,
    Surrogate,
    TokenScores,
    sequences,
    token_scores,
)

Said = Callable[[Diagnosis], None]
"""Called with the diagnosis before any costate is taken."""


def costates(
    language_model: LanguageModel,
    rollouts: Rollouts,
    config: CostateConfig | None = None,
    *,
    task: Task | None = None,
    said: Said | None = None,
    progress: Progress | None = None,
) -> Result:
    """Empirical costates of rollouts: their norm, noise and locality at every layer asked for, each beside a control.

    First the rollouts are looked at (`diagnosis`): whether rewards differ within groups, entropy, lengths, and whether
    this model sampled them. With a task small enough, all continuations of each prompt are enumerated, and the mean
    costate stands beside the true value gradient.

    Args:
        language_model: That the rollouts are of.
        rollouts: Generated, or read from files.
        config: Objective, layers, update and sampling.
        task: Whose reward the rollouts have, for the enumeration.
        said: Called with the diagnosis.
        progress: Called as progress(what, done, total).

    Raises:
        InputError: Another policy sampled the rollouts, no group has variance, there is nothing to differentiate, or
            the model gives no usable gradient.
    """
    config = config or CostateConfig()
    model, where = language_model.model, rollouts.source or "rollouts"
    batch = sequences(rollouts.prompt_ids, rollouts.completion_ids)
    with blamed(where):
        found = token_scores(model, batch, config.sampling, micro_batch=config.micro_batch)
    scores = TokenScores(
        log_prob=found.log_prob.cpu(), entropy=found.entropy.cpu(), rounded=found.rounded.cpu()
    )
    diagnosed = diagnosis(language_model, rollouts, scores, seed=config.seed)
    if said:
        said(diagnosed)
    refuse_other_policy(diagnosed, rollouts, language_model)
    weights = _weights(rollouts, batch, config, diagnosed)
    if config.positions == "prompt" and int(batch.prompt_length.max()) < 2:
        must = "prompts must have a token before the last one, whose state completions share"
        raise InputError(must, "found prompts of one token", where)
    request = Request(
        language_model=language_model,
        batch=batch,
        group=rollouts.group,
        objective=_objective(rollouts, weights, config),
        scale=weights.rollout,
        layers=chosen_layers(config.layers, language_model.num_layers),
        positions=config.positions,
        micro_batch=config.micro_batch,
    )
    with blamed(language_model.name):
        taken = measured(request, progress)
        parts = [diagnosed.result, _own_part(taken, request, scores, config)]
        parts += _at_the_start(taken, request, rollouts, task, config)
        parts += _credit(request, config, progress)
    provenance = _provenance(language_model, rollouts, config, weights.words)
    provenance["outside_by_rounding"] = (
        f"{int(scores.rounded.sum())} tokens"  # of top-k or top-p; counted as inside
    )
    whole = merged(parts, provenance=provenance)
    return replace(whole, verdict=costate_verdict(whole))


def _weights(
    rollouts: Rollouts, batch: Sequences, config: CostateConfig, diagnosed: Diagnosis
) -> TokenWeights:
    if config.objective == "reward":
        ones = torch.ones(len(rollouts), dtype=torch.float64)
        return TokenWeights(
            rollout=ones, token=batch.valid.double(), whole=False, words="none: rewards differentiate"
        )
    if rollouts.rewards is None and rollouts.advantages is None:
        raise InputError(
            "rollouts must hold rewards, or advantages", "found neither", rollouts.source or "rollouts"
        )
    if not diagnosed.has_variance:
        must = "some group must have rewards that differ, or the update is exactly zero"
        raise InputError(
            must, f"found none ({diagnosed.sentence.rstrip('.')})", rollouts.source or "rollouts"
        )
    return token_weights(rollouts, batch, config.update)


def _objective(rollouts: Rollouts, weights: TokenWeights, config: CostateConfig) -> Objective:
    if config.objective == "surrogate":
        return Surrogate(weights=weights.token, sampling=config.sampling)
    if rollouts.targets is None:
        must = "a differentiable reward needs right tokens: a task with answers, or --reward-targets COLUMN"
        raise InputError(must, "found none", rollouts.source or "rollouts")
    return target_probability(rollouts, config.sampling)


def _own_part(taken: Measured, request: Request, scores: TokenScores, config: CostateConfig) -> Result:
    """What every state says alone."""
    group = torch.tensor(request.group)
    index = {"objective": config.objective}
    findings = [
        objective_finding(config.objective, len(group)),
        *norm_findings(taken, index, group, config.seed),
        *locality_findings(taken, index, group, config.seed),
    ]
    return Result(
        kind="costates",
        findings=tuple(findings),
        tables={"positions": positions_table(taken, scores, prompt=config.positions == "prompt")},
    )


def _at_the_start(
    taken: Measured, request: Request, rollouts: Rollouts, task: Task | None, config: CostateConfig
) -> list[Result]:
    """What a group says together, at the state that it shares."""
    generator = torch.Generator().manual_seed(config.seed) if config.objective == "surrogate" else None
    permutable = generator if rollouts.rewards is not None and rollouts.values is None else None
    if taken.start is None:
        return []
    if min(Counter(request.group).values()) < 2:
        why = "a group of one rollout has neither a mean nor a spread"
        return [
            Result(kind="costates", skipped=({"what": "signal and noise at the start state", "why": why},))
        ]
    starts = Starts(
        costates=taken.start,
        scale=request.scale,
        group=torch.tensor(request.group),
        layers=taken.layers,
        baseline="leave-one-out" if permutable is not None and config.update.as_defined else None,
    )
    means = group_means(starts, permutable)
    start = Result(
        kind="costates",
        findings=tuple(signal_findings(means, {"objective": config.objective}, config.seed)),
        arrays={"start_costate": Array(axes="group layer d_model", values=means.own.mean)},
    )
    lm, limit = request.language_model, config.enumerate_up_to
    if task is None or not can_enumerate(lm, rollouts, task, limit=limit):
        return [start]
    return [start, oracle(lm, rollouts, task, means, config)]


def _credit(request: Request, config: CostateConfig, progress: Progress | None) -> list[Result]:
    """Where credit came from: over sampled tokens (of a differentiable reward), and through which heads."""
    relaxed = config.objective == "reward" and config.positions == "completion"
    relaxation = Relaxation(sampling=config.sampling, max_hops=config.max_hops, tolerance=config.tolerance)
    parts = [hops(request, relaxation, seed=config.seed, progress=progress)] if relaxed else []
    if config.full and relaxed:
        parts.append(entropy_bound(request, relaxation, seed=config.seed, progress=progress))
    if config.full:
        index = {"objective": config.objective}
        parts.append(head_credit(request, index, seed=config.seed, progress=progress))
    return parts


def _provenance(
    language_model: LanguageModel, rollouts: Rollouts, config: CostateConfig, weights: str
) -> dict[str, object]:
    return {
        "model": {
            "name": language_model.name,
            "family": language_model.family,
            "num_layers": language_model.num_layers,
            "d_model": language_model.d_model,
            "parameters": sum(each.numel() for each in language_model.model.parameters()),
            "sha256": language_model.sha256,
            "origin": language_model.origin,
        },
        "rollouts": {
            "source": rollouts.source,
            "count": len(rollouts),
            "groups": len(set(rollouts.group)),
            "tokens": sum(map(len, rollouts.completion_ids)),
        },
        "weights": weights,
        "sampling": asdict(config.sampling),
        **asdict(config.update),
        "dtype": f"measured in {str(language_model.model.dtype).removeprefix('torch.')}",
        "device": str(language_model.device),
        "mask": "padding and everything behind the end of a completion has no loss term and no costate",
    }
