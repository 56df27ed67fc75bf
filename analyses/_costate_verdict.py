"""One or two plain sentences on the value signal of an update."""

from valuelens.analyses._result import Finding, Result


def costate_verdict(result: Result) -> str:
    """What was found, how sure, and beside which control.

    Args:
        result: Of `costates`, with its diagnosis.
    """
    said = [str(each.estimate) for each in result.find("diagnosis")]
    said += [_on_signal(result), _on_locality(result), _on_hops(result), _on_truth(result)]
    return " ".join(part for part in said if part)


def _on_signal(result: Result) -> str:
    """Of the layer in the middle of those asked for."""
    found = result.find("signal_to_noise")
    if not found:
        return ""
    signal = found[len(found) // 2]
    layer = signal.index["layer"]
    if signal.estimate is None:
        return f"At layer {layer} the costates of a group do not differ."
    beside = f" (permuted advantages: {signal.control.estimate:.2g})" if signal.control else ""
    sure = signal.interval is not None and signal.interval[0] > 0
    if signal.interval is None:
        ratio = f"signal-to-noise {signal.estimate:.2g}{beside}"
        return f"At layer {layer} groups are too few to be sure of a value signal: {ratio}."
    (needed,) = result.find("rollouts_needed", layer=layer)
    if not sure or needed.estimate is None:
        ratio = f"signal-to-noise {signal.estimate:.2g}{beside}"
        return f"At layer {layer} no value signal is certain above the noise: {ratio}."
    return (
        f"At layer {layer} the costate of one rollout has signal-to-noise {signal.estimate:.2g}{beside}; the mean of "
        f"about {needed.estimate:.0f} rollouts of a prompt would have cosine .9 with {TARGETS[objective_of(result)]}."
    )


def _on_locality(result: Result) -> str:
    found = result.find("locality")
    if not found:
        return ""
    ends = found[:1] if len(found) == 1 else (found[0], found[-1])
    shares = ", ".join(f"{_share(each)} at layer {each.index['layer']}" for each in ends)
    return f"The share of costates that comes from a state's own token: {shares}."


def _on_truth(result: Result) -> str:
    found = result.find("cosine", against="enumerated")
    if not found:
        return ""
    finding = found[len(found) // 2]
    beside = f" (permuted advantages: {finding.control.estimate:.2f})" if finding.control else ""
    layer, missed = finding.index["layer"], ""
    for gap in result.find("gap_discrete", layer=layer):
        if gap.estimate is not None and gap.control is not None:
            missed = f" and differs by {gap.estimate:.0%} of it (noise alone: {gap.control.estimate:.0%})"
    return (
        f"Beside the enumerated value gradient the mean costate has cosine {finding.estimate:.2f} at layer {layer}"
        f"{beside}{missed}."
    )


def _on_hops(result: Result) -> str:
    """Of the lowest layer: what the sampling path adds in the relaxed graph."""
    gaps = result.find("gap_relaxed")
    if not gaps or gaps[0].estimate is None:
        return ""
    layer = gaps[0].index["layer"]
    size = f"{gaps[0].estimate:.0%} of the relaxed sum over hops"
    return f"Without the sampling path it differs by {size} at layer {layer}."


def objective_of(result: Result) -> str:
    """The objective whose costates a result is about; `surrogate` where it has none.

    Args:
        result: Of `costates`.
    """
    return next((str(each.estimate) for each in result.find("objective")), "surrogate")


TARGETS = {
    "surrogate": "the value gradient",
    "reward": "their expectation, which lacks the sampling path",
}
"""What the mean costate of each objective points to as rollouts grow in number (theory B2)."""


def _share(finding: Finding) -> str:
    return "an unknown share" if finding.estimate is None else f"{finding.estimate:.0%}"
