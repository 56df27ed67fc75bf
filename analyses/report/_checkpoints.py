"""The result of a run, seen one checkpoint at a time."""

from dataclasses import replace

from valuelens.analyses._result import Finding, Result

_RUN = ("seed", "checkpoint")


def checkpoint_labels(result: Result) -> tuple[str, ...]:
    """Labels such as `seed-0/step-00002000` of the fully analysed checkpoints of a run, in order.

    Args:
        result: Of a run; a single checkpoint has no labels.
    """
    labels = (_label(finding) for finding in result.findings)
    return tuple(dict.fromkeys(label for label in labels if label))


def at_checkpoint(result: Result, label: str) -> Result:
    """One checkpoint of a run as if it had been analysed alone: its findings and arrays under plain names.

    Args:
        result: Of a run.
        label: One of `checkpoint_labels`.
    """
    return replace(
        result,
        findings=tuple(_alone(finding) for finding in result.findings if _label(finding) == label),
        arrays={
            name.removeprefix(f"{label}/"): array
            for name, array in result.arrays.items()
            if name.startswith(f"{label}/")
        },
        tables={},
        skipped=tuple(each for each in result.skipped if each["what"].endswith(f" of {label}")),
    )


def main_checkpoint(result: Result) -> tuple[str, Result]:
    """Label and content of the checkpoint that the verdict is about: the last one of the first seed.

    Args:
        result: Of a run, or of a single checkpoint, which stands for itself (and has an empty label).
    """
    labels = checkpoint_labels(result)
    if not labels:
        return "", result
    main = max(label for label in labels if label.startswith(f"{labels[0].split('/')[0]}/"))
    return main, at_checkpoint(result, main)


def last_checkpoints(result: Result) -> tuple[str, ...]:
    """Label of the last checkpoint of every seed of a run."""
    last = {label.split("/")[0]: label for label in sorted(checkpoint_labels(result))}
    return tuple(last.values())


def spoken(label: str) -> str:
    """A label in words.

    Example:
        >>> spoken("seed-0/step-00002000")
        'step 2,000 of seed 0'
    """
    seed, _, checkpoint = label.rpartition("/")
    number = checkpoint.removeprefix("step-")
    step = f"step {int(number):,}" if number.isdecimal() else checkpoint
    return f"{step} of {seed.replace('-', ' ')}" if seed else step


def _label(finding: Finding) -> str:
    index = finding.index
    return f"seed-{index['seed']}/{index['checkpoint']}" if "checkpoint" in index and "seed" in index else ""


def _alone(finding: Finding) -> Finding:
    return replace(finding, index={key: value for key, value in finding.index.items() if key not in _RUN})
