"""What entropy has to do with the relaxed gap: how tight its bounds are, and whether the two go together.

Shape legend: `rollout` rows, `layer` those asked for, `state` k: after k sampled tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._costate_measures import Request
from valuelens.analyses._entropy_bound_findings import (
    correlation_findings,
    path_findings,
    tightness_findings,
)
from valuelens.analyses._request import Progress
from valuelens.analyses._result import Result
from valuelens.models import InputError
from valuelens.models.lm import LanguageModel
from valuelens.probe import (
    DENSE_VOCABULARY,
    DENSE_WIDTH,
    BoundForm,
    Hops,
    Path,
    PowerIteration,
    Relaxation,
    Sampling,
    Sequences,
    StatePairs,
    TargetProbability,
    Through,
    crossings,
    dense_jacobians,
    direction_cosines,
    hop_batches,
    leading_singular_values,
    relaxed_credit,
    state_pairs,
    token_scores,
)
from valuelens.probe import entropy_bound as bounded

_GROUPS, _PER_GROUP = 32, 2
"""Groups looked at, and rollouts of each: the first."""

_FOLLOWED = 4
"""Rollouts, one of a group, between whose states singular values are found by power iteration."""

_AHEAD = 8
"""Of a wide model, tokens that credit crosses from the one state of a rollout that is followed."""

_EXACT, _ROUGH = PowerIteration(micro_batch=64), PowerIteration(iterations=20, tolerance=0.01, micro_batch=2)
"""For models whose Jacobians are formed whole, and for wider ones."""


def entropy_bound(
    request: Request,
    relaxation: Relaxation | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """How tight both forms of the bound are, whether gap and entropy go together, and the norms behind the bound.

    Some rollouts of each group are looked at. The norms of a model of d_model <= 64 and few tokens are those of its
    Jacobians formed whole; of others, power iteration gives lower bounds, for one late state of a few rollouts at the
    middle one of the layers.

    Source: theory B5.

    Args:
        request: Model, rollouts and layers, of objective `reward`.
        relaxation: How tokens were drawn, and how many hops are followed.
        seed: Of intervals, and of where iterations start.
        progress: Called after each micro-batch.

    Raises:
        InputError: The objective is not a differentiable reward.
    """
    layers = [layer for layer in request.layers if 0 <= layer < request.language_model.num_layers]
    if not layers:
        skipped = {"what": "entropy bound", "why": "behind the last block no path joins two states"}
        return Result(kind="costates", skipped=(skipped,))
    relaxation = relaxation or Relaxation()
    chosen, small = _chosen(request, layers), _is_small(request.language_model)
    paths = _paths(chosen, relaxation.sampling, seed, small=small)
    parts = []
    for start, rows, hops in _hops(chosen, relaxation):
        norms = _whole_norms(chosen, rows) if small else _found_norms(chosen, rows, start, paths)
        parts.append(_states(chosen, rows, start, hops, norms, relaxation.sampling))
        if progress:
            progress("entropy bound", start + len(hops.values), len(chosen.group))
    states = pd.concat(parts, ignore_index=True)
    exact = "whole" if small else "power iteration"
    findings = [
        *tightness_findings(states, exact, seed),
        *correlation_findings(states, seed),
        *path_findings(paths, request.language_model.d_model, seed),
    ]
    return Result(kind="costates", findings=tuple(findings), tables={"bounds": states, "paths": paths})


def _is_small(language_model: LanguageModel) -> bool:
    vocabulary = int(language_model.model.config.get_text_config().vocab_size)
    return language_model.d_model <= DENSE_WIDTH and vocabulary <= DENSE_VOCABULARY


def _chosen(request: Request, layers: Sequence[int]) -> Request:
    """The same of the first rollouts of the first groups, without empty completions."""
    objective, batch = request.objective, request.batch
    if not isinstance(objective, TargetProbability):
        found = f"found {type(objective).__name__}"
        raise InputError("the entropy bound is one of a differentiable reward", found, "objective")
    counts: dict[int, int] = {}
    index = []
    for row, (group, length) in enumerate(zip(request.group, batch.completion_length.tolist(), strict=True)):
        taken = counts.get(group, 0)
        if length and taken < _PER_GROUP and (taken or len(counts) < _GROUPS):
            counts[group] = taken + 1
            index.append(row)
    at = torch.tensor(index, dtype=torch.long)
    rows = Sequences(
        input_ids=batch.input_ids[at],
        prompt_length=batch.prompt_length[at],
        completion_length=batch.completion_length[at],
    )
    if len(objective.targets) > 1:
        objective = replace(objective, targets=objective.targets[at])
    return replace(
        request,
        layers=layers,
        objective=objective,
        batch=rows.rows(0, len(index)),
        group=[request.group[row] for row in index],
        scale=request.scale[at],
    )


def _hops(chosen: Request, relaxation: Relaxation) -> Iterator[tuple[int, Sequences, Hops]]:
    start, model = 0, chosen.language_model.model
    options = {"relaxation": relaxation, "micro_batch": chosen.micro_batch}
    for hops in hop_batches(model, chosen.batch, chosen.objective, layers=chosen.layers, **options):  # type: ignore[arg-type]
        stop = start + len(hops.values)
        yield start, chosen.batch.rows(start, stop), hops
        start = stop


def _paths(chosen: Request, sampling: Sampling, seed: int, *, small: bool) -> pd.DataFrame:
    """A line for each pair of states that is followed, at each layer: norms of both kinds of path, and their cosine."""
    pairs = _pairs(chosen, small=small)
    layers = chosen.layers if small else [chosen.layers[len(chosen.layers) // 2]]
    options, generator = _EXACT if small else _ROUGH, torch.Generator().manual_seed(seed)
    model, parts = chosen.language_model.model, []
    kinds: tuple[Through, Through] = ("attention", "sampling")
    for layer in layers:
        attention, sampled = (
            leading_singular_values(
                model,
                chosen.batch,
                pairs,
                Path(layer=layer, through=through, sampling=sampling),
                generator,
                options,
            )
            for through in kinds
        )
        columns = {
            "row": pairs.row.tolist(),
            "group": [chosen.group[row] for row in pairs.row.tolist()],
            "layer": layer,
            "source": pairs.source.tolist(),
            "target": pairs.target.tolist(),
            "attention": attention.values[:, 0].tolist(),
            "sampling": sampled.values[:, 0].tolist(),
            "cosine": direction_cosines(attention, sampled)["right"].tolist(),
            "iterations": torch.maximum(attention.iterations, sampled.iterations).tolist(),
            "change": torch.maximum(attention.change, sampled.change).tolist(),
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def _pairs(chosen: Request, *, small: bool) -> StatePairs:
    """Of the first rollout of each of the first groups; of a wide model, from one late state of each."""
    first = {group: row for row, group in reversed(list(enumerate(chosen.group)))}
    rows = sorted(first.values())[:_FOLLOWED]
    pairs = state_pairs(chosen.batch)
    kept = torch.isin(pairs.row, torch.tensor(rows))
    if not small:
        late = (chosen.batch.completion_length[pairs.row] - 1 - _AHEAD).clamp(min=0)
        kept &= pairs.source == late
    return StatePairs(row=pairs.row[kept], source=pairs.source[kept], target=pairs.target[kept])


def _whole_norms(chosen: Request, rows: Sequences) -> Float[Tensor, "rollout layer state state"]:
    whole = dense_jacobians(chosen.language_model.model, rows, layers=chosen.layers)
    norms: Tensor = torch.linalg.matrix_norm(whole.cpu().double(), ord=2)
    return norms


def _found_norms(
    chosen: Request, rows: Sequences, start: int, paths: pd.DataFrame
) -> Float[Tensor, "rollout layer state state"]:
    """Those that power iteration found; 0 elsewhere."""
    count, states = rows.valid.shape
    norms = torch.zeros(count, len(chosen.layers), states, states, dtype=torch.float64)
    columns = (paths[name].tolist() for name in ("row", "layer", "target", "source", "attention"))
    for row, layer, target, source, norm in zip(*columns, strict=True):
        if start <= row < start + count:
            norms[row - start, chosen.layers.index(layer), target, source] = norm
    return norms


def _states(
    chosen: Request,
    rows: Sequences,
    start: int,
    hops: Hops,
    norms: Float[Tensor, "rollout layer state state"],
    sampling: Sampling,
) -> pd.DataFrame:
    """A line for each state at each layer."""
    model, credit = chosen.language_model.model, relaxed_credit(hops, rows)
    sent = crossings(model, rows, credit.embeddings, sampling)
    scores = token_scores(model, rows, sampling, micro_batch=len(rows.input_ids))
    asked = norms.diagonal(dim1=-2, dim2=-1) > 0
    found = bounded(credit, sent, norms, asked=asked)
    whole = credit.relaxed.double().norm(dim=-1)
    row, layer, state = (rows.valid[:, None].expand(found.error.shape)).nonzero().unbind(-1)
    ahead = rows.completion_length[row] - 1 - state
    columns = {
        "row": (start + row).tolist(),
        "group": [chosen.group[start + each] for each in row.tolist()],
        "layer": [chosen.layers[each] for each in layer.tolist()],
        "state": state.tolist(),
        "ahead": ahead.tolist(),
        "entropy": scores.entropy.cpu()[row, state].tolist(),
    }
    numbers = {"gap": found.error / whole, "error": found.error}
    for form in get_args(BoundForm):
        numbers[f"{form}_tightness"] = found.tightness(form)
        numbers[f"{form}_violated"] = found.violations(form)
    columns |= {name: each[row, layer, state].tolist() for name, each in numbers.items()}
    return pd.DataFrame(columns)
