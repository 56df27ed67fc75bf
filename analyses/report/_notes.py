"""What has to be said beside the numbers of a report: introductions, caveats where they apply, limitations."""

from collections.abc import Mapping, Sequence
from typing import Any

from valuelens.analyses._result import Finding, Result
from valuelens.analyses._verdict import td_by_construction
from valuelens.analyses.report._note import Applies, indexed, named
from valuelens.analyses.report._notes_costates import (
    COSTATE_INTRODUCTIONS,
    COSTATE_LIMITATIONS,
    COSTATE_NOTES,
    COSTATE_TITLES,
)
from valuelens.analyses.report._notes_impact import (
    IMPACT_INTRODUCTIONS,
    IMPACT_LIMITATIONS,
    IMPACT_NOTES,
    IMPACT_TITLES,
)
from valuelens.analyses.report._origin import config_part
from valuelens.analyses.report._phrases import PHRASES
from valuelens.analyses.report._readable_names import readable_name

TITLES = {
    "training": "Training",
    "other": "Other findings",
    **COSTATE_TITLES,
    **IMPACT_TITLES,
}

INTRODUCTIONS = {
    "training": "From which optimiser step on does each property last? The criteria are ours, fixed beforehand; "
    "the constant predictor never meets the two that concern values.",
    "other": "Findings without a section of their own.",
    **COSTATE_INTRODUCTIONS,
    **IMPACT_INTRODUCTIONS,
}


def _td_by_construction(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    return td_by_construction(config_part(provenance, "model"))


def _unidentified(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    return any("gradient" in f.reasons.get("estimate", "") for f in findings)


def _wider_gauge(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    return any("gauge" in f.reasons.get("estimate", "") for f in findings)


def _stored_values(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    model = config_part(provenance, "model")
    return bool(model.get("arch") == "tsm" and model.get("weights") in ("full", "factored"))


def _cart_pole(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    return bool(config_part(provenance, "task").get("env") == "cartpole")


def _one_hot(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    return bool(config_part(provenance, "task").get("features") == "one-hot")


_NOTES: dict[str, tuple[tuple[Applies, str], ...]] = {
    **COSTATE_NOTES,
    **IMPACT_NOTES,
    "values": (
        (
            named("msve_ratio"),
            "A small error alone proves little: where values hardly differ within a chain, the "
            "constant predictor is accurate too. Within-chain R2 is the measure that it cannot fake.",
        ),
        (
            _cart_pole,
            "The cells of the cart-pole task are not Markov; true values are those of the empirical chain.",
        ),
    ),
    "weights": (
        (
            named("weight_cosine"),
            "The cosine is blind to the effective discount: weights may point along (1, 1, -1) "
            "to 0.99 and still solve an equation with another discount, so read both.",
        ),
        (
            _unidentified,
            "Unidentified means that an entry's gradient is exactly zero in this form of model, so training never "
            "moved it and its sign says nothing. In the first of several untied layers both memories are still "
            "empty, which hides w_T and w_C.",
        ),
        (
            _wider_gauge,
            "In a free model with two heads many weights give the same function, so no single entry or sign says "
            "anything; the functional distance does. The matrices are drawn for completeness.",
        ),
        (
            _stored_values,
            "Full and factored weights leave a freedom that is not removed here: a layer may also store a multiple of "
            "its values in the feature or reward rows and read it back. Two models with the same function can then "
            "differ in w, effective discount and functional distance; read them for weights that write little there "
            "(off support, V).",
        ),
        (
            _one_hot,
            "With one-hot features softmax cannot see a constant added to a column of A; sharpness and residual "
            "are taken after that freedom is removed from both sides.",
        ),
    ),
    "rule": (
        (
            named("reparameterisation_r2"),
            "Two forms of one rule stand here. The share explained is of weighted softmax TD with three free weights a "
            "layer, on reward, next value and own value. The iterates, and the distance to them, are of the rule of "
            "theta*, where one step size stands in place of the three: it keeps the discount of the tasks and cannot "
            "follow a layer that learned another one.",
        ),
        (
            _td_by_construction,
            "The weights of this model are restricted: each layer is of the TD form by construction, trained or not. "
            "Its R2 near 1 tests our hooks and the fit, not the training; what training found is in the weights.",
        ),
        (
            named("reparameterisation_r2"),
            "R2 counts from predicting no update, so it is negative where a rule is "
            "worse than that; the control uses the rewards of another context and may be far below zero.",
        ),
    ),
    "neu": (
        (
            named("neu_task"),
            "The task form squares the update inside the average over contexts, so noise of single contexts counts: "
            "over finite contexts theta* has a floor and need not be the minimum. Both forms are our definition.",
        ),
        (
            named("neu_parameter"),
            "The parameter form depends on how weights are parameterised; compare it within one form only. For softmax "
            "TD the weights are the merged matrices A and V.",
        ),
        (
            named("mstde"),
            "The mean squared TD error is no measure of correct values: the true value is not its minimum.",
        ),
        (
            _cart_pole,
            "Curves against depth use contexts drawn from the chain of cells, which the cart-pole is not.",
        ),
    ),
    "identify": (
        (
            _td_by_construction,
            "The weights of this model are restricted: with the signs ++- any of them are softmax TD, so that the name "
            "says little more than the signs. What training found is the effective discount.",
        ),
        (
            named("algorithm"),
            "Rules are fitted with all their weights free: weighted softmax TD has three a layer, on reward, next "
            "value and own value, and its effective discount is their ratio. theta* has one step size instead.",
        ),
        (
            named("algorithm"),
            "A rule counts in a layer if it explains 0.95 of the squared updates with the signs that make it that "
            "rule; two rules are one if they differ by less than the noise. These thresholds are ours. Updates below a "
            "hundredth of the squared values count relative to that.",
        ),
        (
            named("rule_response"),
            "Changed prompts never came out of a chain. A rule that fits ordinary prompts only may miss them.",
        ),
    ),
    "opaque": (
        (
            named("decodability"),
            "Decodable is not used: values, rewards and features go together, so much of a value can be read off a "
            "reward that merely passes through. What is used shows in the patches, and only where the untrained "
            "network reads far worse is decoding evidence of computing.",
        ),
        (
            named("decodability"),
            "Which iterate a layer holds is not given: it is the one that the training contexts decode best.",
        ),
        (
            named("decodability"),
            "Whether successors are seen at all is told by the same network trained without positions: what that one "
            "shows as well cannot rest on which state follows which.",
        ),
    ),
    "credit": (
        (
            _td_by_construction,
            "With restricted weights the recursion holds for the model's own update weights by construction; the "
            "measurement is the gap to the fitted ones, where all three have the same size.",
        ),
        (
            _stored_values,
            "Full and factored weights may store values in other rows or let attention read them; credit then takes "
            "ways that the recursion does not know, and the gap counts them.",
        ),
    ),
    "kernel": (
        (
            named("assumption_margin"),
            "Assumption 5.1 is sufficient for convergence, not necessary, and rarely holds: with raw random features "
            "it held in none of 300 chains, though the updates converge in all of them. Nothing is concluded from "
            "the sign of the margin alone.",
        ),
        (
            named("coverage"),
            "Most contexts miss some states. Empirical diagonals, norms and radii are taken over "
            "visited states; values of the others are extrapolations.",
        ),
        (
            named("contraction_norm"),
            "A norm above 1 says nothing about contraction; the spectral radius bounds only "
            "the late rate. Both use the model's own update weights.",
        ),
        (
            named("population_diagonal_mean"),
            "The population diagonal uses the feature block of A only; what the "
            "attention reads from rewards or memories is not in it.",
        ),
    ),
    "generalisation": (
        (
            named("generalisation"),
            "LSTD solves for values that are linear in the features, which true values are not unless the tasks were "
            "made so; LSTD that knows the states is told which columns hold the same state, which no model is. theta* "
            "has alpha = c = 1 and as many steps as the model has layers.",
        ),
        (
            indexed("shift", "cart-pole"),
            "The cells of the cart-pole task are not Markov; true values are those of the empirical chain.",
        ),
        (
            indexed("shift", "context x 10"),
            "A layer that has learnt another fixed point than the true values keeps its error however long the "
            "context; LSTD that knows the states shows what more context could give.",
        ),
    ),
    "training": (
        (
            named("emergence_over_seeds"),
            "The unit of these intervals is the training seed (Student's t of log steps), and a step is known only up "
            "to the distance of two checkpoints. Seeds that share a checkpoint are ties, not an order.",
        ),
        (
            named("emergence_step"),
            "A property counts from the checkpoint after which it never fails again. The effective discount may sit "
            "near gamma by chance while the weights are still small.",
        ),
    ),
}


_NOTES["convergence"] = (
    (
        named("contraction_ratio"),
        "Contraction is towards the fixed point of the context's own transitions, not towards the true value. The norm "
        "bounds every layer and the spectral radius only the late rate, so early layers may be faster than the radius.",
    ),
    (
        named("depth_extrapolation"),
        "A small error at the trained depth says nothing about other depths: where the factor is large, the layers are "
        "not steps of a convergent iteration but a fixed number of steps that were tuned together.",
    ),
    (
        named("bottleneck"),
        "The bottleneck is the one of three limits that leaves the least squared error when it alone is lifted: the "
        "same layer repeated, the same weights in endless contexts, or the best theta* of a fixed grid at the same "
        "depth and context. It is none if less than a tenth is gained. Squared errors weigh states by how often they "
        "are visited; the largest error of a context is that of a rare state, which may stay where the mean falls.",
    ),
    (
        named("floor_slope"),
        "Slopes are fitted over the lengths that are drawn. Short contexts that visit every state are rare and "
        "special, so their slope is flatter than the -0.5 of long ones.",
    ),
    (
        _cart_pole,
        "Fresh contexts follow the chain of the cells, which is Markov, and not the cart-poles themselves.",
    ),
)


def notes(section: str, findings: Sequence[Finding], provenance: Mapping[str, Any]) -> list[str]:
    """The caveats of a section that apply to these findings.

    Args:
        section: Its key.
        findings: That are shown in it.
        provenance: Of the result.
    """
    return [text for applies, text in _NOTES.get(section, ()) if applies(findings, provenance)]


def limitations(result: Result) -> list[str]:
    """What no reader may conclude from a result.

    Args:
        result: Of any kind.
    """
    of_kind = {"costates": COSTATE_LIMITATIONS, "impact": IMPACT_LIMITATIONS}
    return list(of_kind.get(result.kind) or _about_tasks(result))


def definitions(result: Result, standing: str) -> list[str]:
    """What was measured by definitions of one standing, each by a readable name, once.

    Args:
        result: Of any kind.
        standing: `choice` for our own definitions, `audit` for equations known second-hand.
    """
    found = {f.name for f in result.findings if f.definition == standing}
    known = [name for name in PHRASES if name in found] + sorted(found - set(PHRASES))
    return list(dict.fromkeys(readable_name(name) for name in known))


def _about_tasks(result: Result) -> list[str]:
    seeds = {finding.index["seed"] for finding in result.findings if "seed" in finding.index}
    return [
        "Small models on small random Markov reward processes: nothing here speaks about language models.",
        "Intervals are over tasks, not over training seeds (but where a sentence says so)"
        + (f"; this run has {len(seeds)} seed{'s' if len(seeds) > 1 else ''}." if seeds else "."),
        "Layers are counted from 0, as in hook names and in result.json.",
    ]
