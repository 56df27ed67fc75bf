"""Results of one kind side by side: every quantity with its interval, and the difference with its own."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._checkpoints import at_checkpoint, last_checkpoints, spoken
from valuelens.analyses.report._differences import finding_difference
from valuelens.analyses.report._numbers import interval_words, readable
from valuelens.analyses.report._predictors import isolated
from valuelens.analyses.report._sentences import shown, shown_control, shown_interval
from valuelens.analyses.report._style import few_layers

_Compared = tuple[tuple[str, str, dict[str, str]], ...]
_GAIN, _REWARD = (
    {"predictor": predictor, "target": target}
    for predictor, target in (("impact", "gain"), ("reward + impact", "final_reward"))
)
_COMPARED: dict[str, _Compared] = {
    "in-context-rl": (
        ("squared error / constant predictor's, whole contexts", "context_msve_vs_constant", {}),
        ("squared error / constant predictor's, at the query", "msve_vs_constant", {}),
        ("value differences explained within a chain (R2)", "within_chain_r2", {}),
        ("signs of the update weights", "sign_pattern", {}),
        ("cosine with the TD direction", "weight_cosine", {}),
        ("effective discount", "effective_discount", {}),
        ("algorithm", "algorithm", {}),
        ("updates explained by TD with three free weights (R2)", "reparameterisation_r2", {"fit": "weights"}),
        ("attention to itself (kernel diagonal)", "kernel_diagonal_mean", {}),
        ("margin of Assumption 5.1", "assumption_margin", {}),
    ),
    "costates": (
        ("mean reward", "reward", {}),
        ("groups without variance", "frac_reward_zero_std", {}),
        ("entropy, nats", "entropy", {}),
        ("objective", "objective", {}),
        ("signal-to-noise", "signal_to_noise", {}),
        ("rollouts for cosine 0.9", "rollouts_needed", {}),
        ("locality", "locality", {}),
        ("cosine with the value gradient", "cosine", {"against": "enumerated"}),
        ("cosine with the relaxed sum over hops", "cosine", {"against": "relaxed"}),
        ("gap to the value gradient", "gap_discrete", {}),
    ),
    "impact": (
        ("start for the most gain", "recommended", _GAIN),
        ("regret of that start, in gain", "regret", {**_GAIN, "series": "pooled"}),
        ("start for the highest reward", "recommended", _REWARD),
        ("regret of that start, in reward", "regret", {**_REWARD, "series": "pooled"}),
        ("rank correlation of score and gain", "spearman", {**_GAIN, "series": "pooled"}),
        ("the same minus that of the best rival", "spearman_difference", {**_GAIN, "chosen": "once"}),
    ),
}
_SAMPLED = {
    "in-context-rl": "Intervals are over tasks",
    "costates": "Intervals are over prompts",
    "impact": "Intervals are over checkpoints or RL seeds",
}
_METHOD = (
    "{sampled}. A difference is this model's number minus the first model's. Its interval comes from the two intervals "
    "alone, by the square-and-add method (MOVER; Zou and Donner 2008, Statistics in Medicine 27): no pairs of "
    "measurements are kept, so it takes both samples as independent.",
    "Where both saw the same tasks or prompts, their numbers mostly go up and down together; then the interval is too "
    "wide rather than too narrow, and a difference that it cannot show may still be there.",
    "An interval that excludes 0 shows a difference; one that holds 0 does not show that there is none. Of twenty "
    "comparisons without any difference about one excludes 0 by chance.",
    "Where the weights of a model are restricted, its layers are of the TD form by construction, trained or not: that "
    "it explains more of the updates by TD says nothing about training.",
    "Two training seeds are two networks. A difference between them says nothing about what another pair would show.",
)
_LAYERS = {"all": "all layers", "embedding": "embedding"}
_LONGEST, _LETTERS = 30, 26
"""Characters of a name that may stand in every row of a table."""
_PLACES = 3
"""Layers of one quantity that are compared: of more the first, the middle and the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One model's number and how it differs from the first model's.

    Attributes:
        model: Title, and checkpoint of a run.
        estimate, interval, control: In words; the interval may be why there is none.
        difference, around: To the first model, and its interval.
        tells: Whether that interval excludes 0, in words.
        apart: Whether it does.
    """

    model: str
    estimate: str
    interval: str = ""
    control: str = ""
    difference: str = ""
    around: str = ""
    tells: str = ""
    apart: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One quantity, at one place, over all models."""

    head: str
    place: str
    lines: tuple[Line, ...]

    @property
    def quantity(self) -> str:
        """What it is called in a table."""
        return f"{self.head}, {self.place}" if self.place else self.head

    @property
    def size(self) -> int:
        """How many lines it has."""
        return len(self.lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Results of one kind side by side.

    Attributes:
        kind: Of the results.
        models: What is compared; the first is what others are compared with.
        shown: What each is called in words and numbers.
        words: What can and cannot be told apart, in sentences.
        notes: How to read it.
        groups: The numbers.
    """

    kind: str
    models: tuple[str, ...]
    shown: tuple[str, ...]
    words: tuple[str, ...]
    notes: tuple[str, ...]
    groups: tuple[Group, ...]


def comparisons(results: Mapping[str, Result]) -> list[Comparison]:
    """For every kind of which there are two models or more, be they results or seeds of a run.

    Args:
        results: By title.
    """
    found = []
    for kind, compared in _COMPARED.items():
        models = _models((title, result) for title, result in results.items() if result.kind == kind)
        if len(models) > 1:
            shown = dict(zip(short_names(list(models)), models.values(), strict=True))
            groups = tuple(group for each in compared for group in _groups(shown, *each))
            found.append(
                Comparison(
                    kind=kind,
                    models=tuple(models),
                    shown=tuple(shown),
                    words=tuple(_told(name, groups) for name in list(shown)[1:]),
                    notes=tuple(
                        text.format(sampled=_SAMPLED[kind])
                        for text in _METHOD
                        if kind == "in-context-rl" or "restricted" not in text
                    ),
                    groups=groups,
                )
            )
    return found


def short_names(names: Sequence[str]) -> list[str]:
    """What models are called in a table: their names; of long ones what is left without brackets and the folders
    that all share; where that is long too, or one name for two, letters.

    Args:
        names: All unlike.

    Example:
        >>> short_names(["runs/before", "runs/after"]), short_names([f"runs/{k}/{'long' * 8}" for k in (1, 2)])
        (['runs/before', 'runs/after'], ['A', 'B'])
        >>> short_names([f"a/folder/with/many/parts/{name} (10 tied layers)" for name in ("before", "after")])
        ['before', 'after']
    """
    bare = [re.sub(r" \([^()]*\)|[\u2068\u2069]", "", name) for name in names]
    parts = [name.split("/") for name in bare]
    alike = [len(set(column)) == 1 for column in zip(*(each[:-1] for each in parts), strict=False)]
    same = alike.index(False) if False in alike else len(alike)
    tails = ["/".join(name[same:]) for name in parts]
    for each in (list(names), [isolated(name) for name in bare], [isolated(name) for name in tails]):
        if max(map(len, each)) <= _LONGEST and len(set(each)) == len(each):
            return each
    return [chr(ord("A") + k) if k < _LETTERS else f"A{k - _LETTERS + 1}" for k in range(len(names))]


def _models(results: Iterable[tuple[str, Result]]) -> dict[str, Result]:
    """Results by title; of runs the last checkpoint of every seed."""
    models: dict[str, Result] = {}
    for title, result in results:
        labels = last_checkpoints(result)
        if not labels:
            models[isolated(title)] = result
        for label in labels:
            models[f"{isolated(title)}, {spoken(label)}"] = at_checkpoint(result, label)
    return models


def _groups(models: Mapping[str, Result], head: str, name: str, index: Mapping[str, str]) -> list[Group]:
    """A group for each place that the models share; where they share none, one with what each has."""
    found = {model: _by_place(result.find(name, **index)) for model, result in models.items()}
    found = {model: places for model, places in found.items() if places}
    if len(found) < 2:
        return []
    first = next(iter(found.values()))
    shared = [place for place in first if all(place in places for places in found.values())]
    if not shared:
        lines = tuple(_spread(model, list(places.values())) for model, places in found.items())
        layered = any("layer" in f.index for places in found.values() for f in places.values())
        return [Group(head=head, place=f"first to last {'layer' if layered else 'series'}", lines=lines)]
    chosen = shared if len(shared) <= _PLACES else [shared[k] for k in few_layers(len(shared))]
    return [
        Group(
            head=head,
            place=place,
            lines=_lines({model: places[place] for model, places in found.items()}, next(iter(models))),
        )
        for place in chosen
    ]


def _by_place(findings: list[Finding]) -> dict[str, Finding]:
    places: dict[str, Finding] = {}
    for finding in findings:
        layer, series = finding.index.get("layer"), finding.index.get("series", "pooled")
        words = [] if layer is None else [_LAYERS.get(str(layer), f"layer {layer}")]
        words += [isolated(str(series))] if series != "pooled" else []
        words += [f"against {finding.index['against']}"] if "against" in finding.index else []
        places.setdefault(", ".join(words), finding)
    return places


def _spread(model: str, findings: list[Finding]) -> Line:
    """Layers or series from the first to the last of a model that shares none with the first model."""
    if len(findings) > _PLACES:
        findings = [findings[k] for k in few_layers(len(findings))]
    controls = [shown_control(f) for f in findings if f.control]
    name = next((f.control.name for f in findings if f.control), "")
    return Line(
        model=model,
        estimate=" | ".join(_of_series(f) + shown(f) for f in findings),
        interval=" | ".join(shown_interval(f) or "none" for f in findings)
        if any(f.interval for f in findings)
        else f"none: {findings[0].reasons.get('interval', '')}",
        control=f"{' | '.join(dict.fromkeys(controls))} ({name})" if controls else "",
        tells=f"not compared: other {'layers' if any('layer' in f.index for f in findings) else 'series'}",
    )


def _of_series(finding: Finding) -> str:
    series = str(finding.index.get("series", "pooled"))
    return "" if series == "pooled" else f"{isolated(series)}: "


def _lines(found: Mapping[str, Finding], reference: str) -> tuple[Line, ...]:
    """Without the first model's number there is nothing to subtract."""
    first = found.get(reference)
    return tuple(_line(model, each, None if model == reference else first) for model, each in found.items())


def _line(model: str, finding: Finding, first: Finding | None = None) -> Line:
    beside = shown_control(finding)
    difference, around, tells, apart = _difference(first, finding) if first else ("", "", "", False)
    return Line(
        model=model,
        estimate=shown(finding),
        interval=shown_interval(finding) or f"none: {finding.reasons.get('interval', '')}",
        control=f"{beside} ({finding.control.name})" if finding.control and beside else "",
        difference=difference,
        around=around,
        tells=tells,
        apart=apart,
    )


def _difference(first: Finding, finding: Finding) -> tuple[str, str, str, bool]:
    if finding.index.get("objective") != first.index.get("objective"):
        return "", "", "not compared: another objective", False
    if isinstance(finding.estimate, str | list) or isinstance(first.estimate, str | list):
        same = finding.estimate == first.estimate
        return "", "", "the same" if same else "not the same", False
    difference, around = finding_difference(first, finding)
    if difference is None:
        return "none", "", "one of the two has no number", False
    said = f"+{readable(difference)}" if difference > 0 else readable(difference)
    if around is None:
        exact = finding.n == 0 and first.n == 0
        return said, "", "exact for these weights" if exact else "no interval", False
    low, high = around
    words = interval_words(low, high)
    if low > 0 or high < 0:
        return said, words, "excludes 0: higher" if low > 0 else "excludes 0: lower", True
    return said, words, "holds 0: cannot be told apart", False


def _told(model: str, groups: tuple[Group, ...]) -> str:
    """Which numbers of a model differ from the first one's beyond their interval."""
    ways: dict[str, dict[str, list[str]]] = {"higher": {}, "lower": {}}
    mine = [(group, line) for group in groups for line in group.lines if line.model == model]
    for group, line in mine:
        if line.apart:
            ways[line.tells.rsplit(" ", 1)[1]].setdefault(group.head, []).append(group.place)
    held = sum(bool(line.around) and not line.apart for _, line in mine)
    told = [
        f"{way} in {'; '.join(_named(*each) for each in names.items())}"
        for way, names in ways.items()
        if names
    ]
    rest = (
        f" Of {held} more numbers with an interval, the difference cannot be told from 0." if held > 1 else ""
    )
    rest = " Of 1 more, the difference cannot be told from 0." if held == 1 else rest
    if not told:
        return f"{model} differs from the first in nothing that has an interval.{rest}"
    return f"Beyond the 95 % interval, {model} is {'; and '.join(told)}.{rest}"


def _named(head: str, places: list[str]) -> str:
    return f"{head} ({', '.join(places)})" if any(places) else head
