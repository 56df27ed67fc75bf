"""What does an opaque transformer keep in its residual stream, and does changing it act as TD predicts?

Shape legend: `batch` tasks, `pos` columns S_0..S_n of a context, `inner` S_1..S_{n-1}, `depth` the embedding and then
every block, `head` of a block, `D` width of the residual stream.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._opaque_findings import (
    OTHER,
    UNTRAINED,
    Index,
    added,
    agreement,
    decodability,
    explained,
    pooled_features,
    r2,
    selectivity,
)
from valuelens.analyses._opaque_patch import Bench, Patched, patches
from valuelens.analyses._opaque_quantities import (
    COPIED,
    MOVED,
    OWN,
    VALUE,
    Decoded,
    as_chosen,
    decoded,
    quantities,
)
from valuelens.analyses._opaque_reading import READABLE, reading
from valuelens.analyses._opaque_rules import SOFTMAX, FittedRule, fit_rules
from valuelens.analyses._question import Phrase, Question
from valuelens.analyses._result import Array, Control, Finding, Result
from valuelens.analyses._subject import (
    FEW,
    Subject,
    another_context,
    evaluation_stream,
    first_tasks,
    in_float64,
    part_of,
)
from valuelens.models.icrl import Context, ModelConfig, Transformer
from valuelens.probe import attention_patterns, decoding_sums, overlap, ratio_interval, residual_stream

_TASKS, _PATCHED, _FEWEST = 128, 64, 8
"""Tasks that are decoded, that are patched (each patch is a run of the model), and without which nothing is."""

_PURPOSE = 4
_EVEN = "even attention"


def opaque(subject: Subject) -> Result:
    """Decode a rule's quantities from every layer, patch decoded values, compare attention with the rule's kernel.

    The rules (weighted softmax TD, linear TD, tabular TD, kernel regression of returns) are fitted to the values that
    the model returns (`returned_rule_error`: on tasks that were not fitted, as a share of the squared values; control:
    the rule on another context). `decodability` is the R^2 of ridge probes on held-out contexts; where a quantity is an
    iterate, the training contexts choose which. `selectivity` is that minus the R^2 for labels of another context,
    for shuffled labels, and of the same quantities in a network of the same shape at its initial parameters.
    `decoded_increment` is the R^2 of what decoded values gain from one layer to the next against what the rule's
    iterates do. `patch_response` moves the decoded value of one column by a standard deviation, along the direction
    of `patch_directions`, and compares how the `response`, the returned values or what the next block adds to decoded
    values, changes with what the TD operator predicts: || measured - predicted || / || predicted ||; 0 is
    exact, 1 no better than predicting no change. `memory` says whether v(S_k) in its own column was moved, its copy in
    the column before, or both. `head_agreement` is the attention on transitions that a head shares with the kernel of
    softmax TD, asked with S_j or S_{j+1}, whichever fits better on the first half of the tasks, on the other half.

    `opaque_reading` puts it in words. "decodable": the rule misses at most 5 % of the squared returned values, and
    in some layer before its last step its iterates have an R^2 above .95 (lower limit) and leave less than half of
    what the untrained network leaves. "as TD predicts": there, the upper limit of the gap is below .1; "in part": it
    is below 1 and below both controls. All definitions and thresholds are ours.

    Args:
        subject: Model and tasks (the first 128 are used); only a `Transformer` is opaque.
    """
    model = subject.model
    if not isinstance(model, Transformer):
        return _skipped("the values of this architecture stand in slots, which need no decoding")
    if subject.context.num_transitions < 4:
        return _skipped("contexts must have at least 4 transitions to have inner columns")
    if subject.num_tasks < _FEWEST:
        return _skipped(f"probes need at least {_FEWEST} tasks")
    study = _study(_fewer(in_float64(subject)))
    bench = Bench(
        model=study.subject.model,
        context=part_of(study.subject.context, slice(_PATCHED)),
        rule=study.rules[SOFTMAX],
        seed=study.seed,
    )
    patched = [
        patches(bench, layer, study.streams[layer + 1], (study.found[layer + 1], study.found[layer + 2]))
        for layer in range(model.num_layers - 1)
    ]
    heads, table = _heads(study)
    findings = [
        *_rule_errors(study),
        *_decoding(study),
        *_increments(study),
        *(finding for each in patched for finding in each.findings),
        *heads,
    ]
    findings.append(reading(findings, study.subject.num_tasks))
    return Result(kind="in-context-rl", findings=tuple(findings), arrays=_arrays(patched, table))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Study:
    """Everything measured on one model.

    Attributes:
        subject: In float64, with the first tasks alone.
        rules: Fitted to what the model returns.
        streams, found: By depth.
        control: By depth, of a network at its initial parameters, the same iterates.
    """

    subject: Subject
    rules: Mapping[str, FittedRule]
    streams: Float[Tensor, "depth batch pos D"]
    found: list[list[Decoded]]
    control: list[list[Decoded]]

    @property
    def seed(self) -> int:
        """Of the evaluation."""
        return self.subject.seed

    def of(self, depth: int, name: str, rule: str = SOFTMAX) -> Decoded:
        """One quantity at one depth."""
        return next(
            each for each in self.found[depth] if (each.quantity.name, each.quantity.rule) == (name, rule)
        )


def _study(subject: Subject) -> _Study:
    model, context = subject.model, subject.context
    if not isinstance(model, Transformer):
        raise TypeError(f"opaque needs a Transformer; found {type(model).__name__}")
    rules = fit_rules(context, subject.values, model.num_layers)
    wanted = quantities(context, subject.truth, rules)
    generator = evaluation_stream(subject.seed, _PURPOSE)
    blank = _untrained(model, context, generator)
    streams, others = (residual_stream(each, each.prompt(context)) for each in (model, blank))
    found = [decoded(stream, wanted, generator) for stream in streams]
    control = [
        decoded(stream, as_chosen(each), generator) for stream, each in zip(others, found, strict=True)
    ]
    return _Study(subject=subject, rules=rules, streams=streams, found=found, control=control)


def _fewer(subject: Subject) -> Subject:
    """The first tasks alone."""
    first = slice(_TASKS)
    return replace(
        subject,
        mrp=first_tasks(subject.mrp, _TASKS),
        context=part_of(subject.context, first),
        lens=subject.lens[:, first],
    )


def _untrained(model: Transformer, context: Context, generator: torch.Generator) -> Transformer:
    """A network of the same shape at its initial parameters."""
    block: Any = model.blocks[0]
    heads, d_model, _ = block.attn.W_Q.shape
    shape = ModelConfig(
        arch="transformer",
        num_layers=model.num_layers,
        num_heads=heads,
        d_model=d_model,
        causal=model.causal,
        positions=model.W_pos is not None,
        normalization="rms" if block.ln1.b is None else "layer",
    )
    return Transformer(
        shape,
        feature_dim=model.feature_dim,
        context_length=context.num_transitions,
        gamma=model.gamma,
        generator=generator,
    ).double()


def _rule_errors(study: _Study) -> list[Finding]:
    """How far each rule is from what the model returns, on the tasks that it was not fitted to."""
    context, values = study.subject.context, study.subject.values
    half = slice(len(values) // 2, None)
    found = []
    for name, rule in study.rules.items():
        own, other = (
            (rule.iterates(each)[-1] - values)[half].square().sum(-1)
            for each in (context, another_context(context))
        )
        total = values[half].square().sum(-1)
        interval = ratio_interval(own, total, seed=study.seed)
        found.append(
            Finding(
                name="returned_rule_error",
                estimate=float(own.sum() / total.sum()),
                unit="1",
                n=len(own),
                definition="choice",
                index={"rule": name, "steps": rule.steps},
                interval=interval,
                control=Control(
                    name="the rule on another context", estimate=float(other.sum() / total.sum())
                ),
                reasons={} if interval else {"interval": FEW},
            )
        )
    return found


def _decoding(study: _Study) -> list[Finding]:
    found = []
    for depth, (here, blank) in enumerate(zip(study.found, study.control, strict=True)):
        beside = pooled_features(blank)
        for key, group in pooled_features(here).items():
            if key[0] in (MOVED, COPIED):
                continue
            found.append(decodability(depth, group, study.seed))
            if key[1] in (SOFTMAX, "") and key[0] != OWN:
                controls = {
                    OTHER: added([each.other for each in group]),
                    UNTRAINED: added([each.sums for each in beside[key]]),
                }
                found += selectivity(depth, group, controls, study.seed)
    return found


def _increments(study: _Study) -> list[Finding]:
    """What decoded values gain from one layer to the next, against the iterates of the rule."""
    found = []
    for name in study.rules:
        for depth in range(2, len(study.found)):
            before, after = (study.of(each, VALUE, name) for each in (depth - 1, depth))
            gain, target = after.predicted - before.predicted, after.target - before.target
            if min(before.r2, after.r2) < READABLE or after.iterate == before.iterate:
                continue
            index: Index = {
                "layer": depth - 1,
                "rule": name,
                "from": before.iterate,
                "to": after.iterate,
            }
            other = r2(decoding_sums(gain, target.roll(1, dims=0)))
            sums = decoding_sums(gain, target)
            found.append(
                explained(
                    "decoded_increment", index, sums, ("increments of another context", other), study.seed
                )
            )
    return found


def _heads(study: _Study) -> tuple[list[Finding], Array]:
    """Attention on transitions that each head shares with the kernel asked with S_j or with S_{j+1}."""
    context = study.subject.context
    n, kernel = context.num_transitions, study.rules[SOFTMAX].kernel(context)
    patterns = attention_patterns(study.subject.model, study.subject.model.prompt(context))
    asked = {"S_j": kernel[:, :n], "S_j+1": kernel[:, 1:]}
    findings, table, half = [], [], len(kernel) // 2
    for layer, heads in enumerate(patterns):
        for head in range(heads.shape[1]):
            pattern = heads[:, head, :n, :n]
            pattern = pattern / pattern.sum(-1, keepdim=True).clamp(min=torch.finfo(pattern.dtype).tiny)
            shared = {name: overlap(pattern, rows) for name, rows in asked.items()}
            best = max(shared, key=lambda name: float(shared[name][:half].mean()))
            beside = [
                (_EVEN, overlap(torch.full_like(pattern, 1 / n), asked[best])[half:]),
                (f"the kernel of {OTHER}", overlap(pattern, asked[best].roll(1, dims=0))[half:]),
            ]
            index: Index = {"layer": layer, "head": head, "asks": best}
            findings.append(agreement(index, shared[best][half:], beside, study.seed))
            table.append(torch.stack([each.mean() for each in shared.values()]))
    values = torch.stack(table).reshape(len(patterns), -1, 2)
    return findings, Array(axes="layer head asked", values=values)


def _arrays(patched: list[Patched], heads: Array) -> dict[str, Array]:
    responses = [each.responses for each in patched if each.responses is not None]
    arrays = {"head_overlap": heads}
    if responses:
        values = torch.stack([each.values for each in responses])
        arrays["patch_responses"] = Array(axes="layer which task pos", values=values)
    return arrays


def _skipped(why: str) -> Result:
    return Result(kind="in-context-rl", skipped=({"what": "opaque", "why": why},))


def _unanswered(x: float) -> str:
    return ", no better than predicting no change" if x >= 1 else ""


QUESTION = Question(
    name="opaque",
    ask=opaque,
    title="What is decodable, and what it does",
    introduction="What does the residual stream show of a TD rule, and does changing it act as the rule predicts? "
    "Rules are fitted to the returned values; ridge probes decode what a rule would have to keep, on contexts that "
    "they never saw; a decoded value is then changed in one column. Controls are the labels of another context, "
    "shuffled labels, a network of the same shape at its initial parameters, and other directions of the same norm.",
    last_only=True,
    phrases={
        "opaque_reading": Phrase(
            noun="the reading of the residual stream",
            text="In short: {x}",
            beside="{name}: {c}",
        ),
        "returned_rule_error": Phrase(
            noun="the error of {rule}",
            text="With {steps} step(s), fitted to other tasks, {rule} misses {x} of the squared values that are "
            "returned",
            beside="{name} misses {c}",
        ),
        "decodability": Phrase(
            noun="the decoding of {quantity}, {after},",
            text="{after} a linear probe decodes {quantity}{which} with R^2 = {x}",
            beside="{c}",
        ),
        "selectivity": Phrase(
            noun="the selectivity of {quantity} {after}",
            text="{after} {quantity}{which} is decoded better than in the control by {x} of R^2",
            beside="{name} is {c}",
        ),
        "decoded_increment": Phrase(
            noun="what {whose} decoded values gain",
            text="{inside}decoded values gain what {rule} adds from iterate {from} to {to} with R^2 = {x}",
            beside="{name}: {c}",
        ),
        "patch_response": Phrase(
            noun="{whose} response of the {response} to a patch of {memory}",
            text="{after} moving the decoded value of one column ({memory}) changes the {response} as TD predicts "
            "up to {x} of the predicted change",
            beside="{c}",
            comment=_unanswered,
        ),
        "head_agreement": Phrase(
            noun="{whose} agreement with the kernel",
            text="{inside}attention on transitions shares {x} with the kernel of softmax TD asked with {asks}",
            beside="{c}",
        ),
    },
)
