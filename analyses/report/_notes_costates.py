"""What has to be said beside the numbers of language models: introductions, caveats, limitations."""

from collections.abc import Mapping, Sequence
from typing import Any

from valuelens.analyses._result import Finding
from valuelens.analyses.report._note import Applies, indexed, named

COSTATE_TITLES = {
    "diagnosis": "Why is the reward flat?",
    "costates": "Costates",
    "hops": "Credit by hop",
    "heads": "Heads that carry credit",
}

COSTATE_INTRODUCTIONS = {
    "diagnosis": "Can these rollouts teach anything at all? Critic-free RL compares the rollouts of one prompt (a "
    "group) with each other, so a group whose rewards are all equal has no advantage and no gradient. Controls are "
    "the largest reward possible, the spread over all rollouts, and a policy that samples every token alike.",
    "costates": "What does the backward pass of the update say about each hidden state? A costate is the derivative "
    "of the objective with respect to the residual stream at one position and layer; averaged over the rollouts that "
    "share a state it estimates how the value changes with that state. Where advantages weigh the tokens, the control "
    "has the same rollouts and rewards with the advantages permuted within every group, which breaks the link.",
    "hops": "What does the path through sampling add? Tokens are fed as straight-through vectors, so that credit can "
    "cross the draw of a token in the relaxed graph, and is split by how many draws it crossed. Nothing here is the "
    "true gradient of the value: where a task is small enough to enumerate, that one stands among the costates.",
    "heads": "Through which heads does credit go back in time? What a costate has beyond its own token left its "
    "position through the keys (pattern path) or values (value path) of some head; the shares of all heads and the "
    "locality add up to 1. The control spreads the attention path evenly; ablating the top heads stands beside "
    "ablating as many others, chosen on other groups.",
}


def _final_norm(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    layers = provenance.get("model", {}).get("num_layers")
    return any(finding.index.get("layer") == layers for finding in findings) if layers else False


def _scale_lost(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    told = str([*provenance.items(), *(finding.reasons for finding in findings)])
    return (
        "scale lost" in told
        or "scale is lost" in told
        or "'advantages_scaled', True" in told
        or "'advantages_scaled': True" in told
    )


def _low_precision(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    return any(short in str(provenance.get("dtype", "")) for short in ("bfloat16", "float16"))


def _on_prompts(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    return of_prompts(findings)


def of_prompts(findings: Sequence[Finding]) -> bool:
    """Whether costates are of the positions of prompts: none of their tokens is sampled, so none has an own part.

    Args:
        findings: Of a result of kind `costates`.
    """
    norms = [finding for finding in findings if finding.name == "costate_norm"]
    return bool(norms) and all(finding.control is None for finding in norms)


def _on_completions(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    return not _on_prompts(findings, provenance)


def _normalised(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    return provenance.get("loss_type") not in (None, "", "none")


def _few_flat(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    shares = [finding.estimate for finding in findings if finding.name == "frac_reward_zero_std"]
    return any(isinstance(share, int | float) and share > 0 for share in shares)


def _both(*parts: Applies) -> Applies:
    return lambda findings, provenance: all(part(findings, provenance) for part in parts)


COSTATE_NOTES: dict[str, tuple[tuple[Applies, str], ...]] = {
    "diagnosis": (
        (
            _few_flat,
            "Groups with equal rewards are counted, not dropped: their advantages, and so their costates, are exactly "
            "0 and pull every average over groups towards 0.",
        ),
        (
            named("best_of_k"),
            "Where the best of several rollouts is far above the mean, the policy already finds what the reward asks "
            "for, and an update can make it more frequent. Where it is not, more rollouts or an easier task come "
            "first.",
        ),
        (
            named("truncated_share"),
            "A completion that was cut off has no end-of-sequence token: its reward may be that of an unfinished "
            "answer.",
        ),
        (
            named("log_prob_mismatch"),
            "Logged log-probabilities that differ from the model's own mean other weights, another precision or "
            "other sampling settings; from the size that is refused on, nothing is measured.",
        ),
    ),
    "costates": (
        (
            indexed("objective", "surrogate"),
            "The surrogate is what critic-free RL trains on: the sum of advantage x log-probability, with tokens "
            "fixed. Its costate is an unbiased estimate of the value gradient, but a noisy one: nothing is missing in "
            "the mean, and a single rollout says little. Straight-through hops must not be added to it; they would "
            "count the same credit twice.",
        ),
        (
            indexed("objective", "reward"),
            "The reward objective is differentiated along fixed tokens, so its costate lacks the path through "
            "sampling: how the state changes which tokens come next. It is not the value gradient, and it is not to be "
            "mixed with the surrogate's.",
        ),
        (
            _both(named("signal_to_noise", "standard_error"), _on_completions),
            "The start state, after the prompt and before the first sampled token, is the only state that a group "
            "shares; means, errors and signal-to-noise are taken there. At later positions rollouts have different "
            "prefixes, so an average over them mixes different states.",
        ),
        (
            named("costate_norm"),
            "The norm of a rollout's costate is not its signal: noise adds to it, and at the start state the norm of "
            "the mean is the smaller the more of it is noise.",
        ),
        (
            named("signal_to_noise"),
            "Signal-to-noise is the squared norm of the mean, freed of the part that noise alone would give, over the "
            "trace of the covariance. It may fall below 0, which reads: no signal was seen with so many rollouts.",
        ),
        (
            named("rollouts_needed"),
            "The rollouts needed follow from the signal-to-noise by cosine = sqrt(n snr / (1 + n snr)); they are an "
            "extrapolation for one prompt at this checkpoint, not a batch size.",
        ),
        (
            named("locality"),
            "Locality is the share of a costate's square that its own token's part explains: 1 where it says only how "
            "to change the next token's probability. The rest came through the attention of later positions, credit "
            "that crossed time; where it points against the own part, the share exceeds 1.",
        ),
        (
            _final_norm,
            "The last layer here is the state after the final norm. Nothing looks back at it, so its costates are all "
            "local, and known in closed form: advantage x (unembedding of the sampled token minus its expectation).",
        ),
        (
            named("gap_discrete"),
            "The enumerated value gradient is exact for this prompt and policy. A gap at a finite number of rollouts "
            "is not bias: compare it with the gap that noise alone would give.",
        ),
        (
            _normalised,
            "A loss type was named, so costates carry its factors, which depend on lengths and on the batch only. They "
            "are as trained; the value gradient is the mean of those without them (loss type none).",
        ),
        (
            _scale_lost,
            "Scale lost: the advantages were read as they were logged, divided by a standard deviation that is not "
            "known. Norms and standard errors have an unknown factor, which may differ from group to group, and "
            "averages over groups weigh them by it.",
        ),
        (
            _low_precision,
            "The model ran in reduced precision; float32 is the reference. Our tests hold bfloat16 to a cosine of 0.99 "
            "and a norm within 5 % of it at every layer of one small model, not of every model.",
        ),
        (
            _on_prompts,
            "These are the states of the prompt, before the start state. They are never averaged with those of the "
            "completion.",
        ),
    ),
    "heads": (
        (
            named("head_ablation"),
            "Cutting a head's credit leaves what the model says as it is. Letting it give 0 does not: the policy "
            "changes too, and costates of trained models often rise (a negative loss, or above 1 against random heads "
            "that raise them), so that way alone supports no claim about credit.",
        ),
    ),
    "hops": (
        (
            named("gap_relaxed"),
            "The relaxed sum is a gradient of another, continuous model that agrees with this one where tokens are "
            "fed as they were drawn. Whether low entropy closes the gap to it differs from model to model; the gap to "
            "the discrete truth it does not close (`benchmarks/discrete_gap.md`).",
        ),
        (
            named("remainder"),
            "The remainder is an estimate from the last two hops; it is certain (0) only where every hop was taken.",
        ),
        (
            named("bound_tightness"),
            "No state violates a bound that is loose: tightness, the error over what the bound allows, tells whether "
            "it says anything. Norms from power iteration are lower bounds of the norms, and so is their bound.",
        ),
        (
            named("entropy_correlation"),
            "A correlation over the states of one checkpoint. Over checkpoints its sign differs "
            "(`benchmarks/entropy_bound.md`), so it is no law.",
        ),
    ),
}

COSTATE_LIMITATIONS = (
    "One policy on these prompts and rollouts: another checkpoint, task or sampling setting has other costates.",
    "Intervals are over groups (prompts), not over checkpoints, tasks or training seeds.",
    "Costates are first-order: how the objective starts to change, not where an optimiser's step leads. A large "
    "costate does not prove that the model uses what it points to.",
    "The update is taken at ratio 1, where clipping is idle; later steps on the same rollouts are not covered.",
    "Our conventions: costates are of what is maximised, the plain sum of advantage x log-probability unless a loss "
    "type is named, whose factors (normalisers) multiply them. Layer l is the residual stream that enters block l, "
    "counted from 0 as in hook names and in result.json; the number of blocks itself stands for the state after the "
    "final norm.",
)

COSTATE_CHOICES = {
    "signal_to_noise": "signal-to-noise (the unbiased squared norm of the mean / trace of the covariance)",
    "rollouts_needed": "rollouts needed (for cosine 0.9, from the signal-to-noise)",
    "locality": "locality (the inner product of a costate and its own token's part / its square)",
    "log_prob_mismatch": "log-probability mismatch (the median over tokens, and where it is refused)",
}
"""Names of definitions that are ours, with what was chosen."""
