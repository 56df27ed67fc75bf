"""Side by side: what differs, by how much, and whether that is more than chance."""

from dataclasses import replace
from typing import Any

from valuelens.analyses import Control, Finding, Result
from valuelens.analyses.report._comparison import comparisons

NAMES = ("context_msve_vs_constant", "msve_vs_constant", "within_chain_r2")


def found(
    name: str, estimate: Any, interval: tuple[float, float] | None = None, **index: int | str
) -> Finding:
    return Finding(
        **{
            "name": name,
            "estimate": estimate,
            "unit": "1",
            "n": 64 if interval else 0,
            "definition": "choice",
        },
        index=index,
        interval=interval,
        control=Control(name="constant predictor", estimate=1.0),
        reasons={"interval": "nothing is sampled", "estimate": "not there"},
    )


def model(error: float, *, layers: int = 1, **index: int | str) -> Result:
    findings = [
        found("context_msve_vs_constant", error, (error - 0.1, error + 0.1), **index),
        found("within_chain_r2", 0.5, (0.4, 0.6), **index),
        found("algorithm", "softmax TD" if error < 1 else "none of these", **index),
    ]
    findings += [found("weight_cosine", 0.9 + error / 100, layer=k, **index) for k in range(layers)]
    return Result(kind="in-context-rl", findings=tuple(findings))


def test_a_difference_stands_beside_its_interval_and_what_it_tells() -> None:
    (side,) = comparisons({"before": model(1.0), "after": model(0.5)})
    assert side.models == ("before", "after")
    error, within, cosine, algorithm = side.groups
    assert error.quantity == "squared error / constant predictor's, whole contexts"
    first, second = error.lines
    assert (first.difference, first.around, first.tells) == ("", "", "")
    assert (second.difference, second.around) == ("-0.50", "-0.641 to -0.359")
    assert (second.tells, second.apart) == ("excludes 0: lower", True)
    assert within.lines[1].tells == "holds 0: cannot be told apart"
    assert algorithm.lines[1].tells == "not the same"
    assert (cosine.place, cosine.lines[1].tells) == ("layer 0", "exact for these weights")
    assert side.words == (
        "Beyond the 95 % interval, after is lower in squared error / constant predictor's, whole contexts. Of 1 more, "
        "the difference cannot be told from 0.",
    )
    assert "square-and-add method (MOVER; Zou and Donner 2008" in side.notes[0]


def test_the_seeds_of_a_run_stand_side_by_side() -> None:
    whole = [
        f
        for seed in (0, 1, 2)
        for f in model(0.2 + 0.5 * seed, seed=seed, checkpoint="step-00000100").findings
    ]
    (side,) = comparisons({"run": Result(kind="in-context-rl", findings=tuple(whole))})
    assert side.models == tuple(f"run, step 100 of seed {seed}" for seed in (0, 1, 2))
    assert [line.apart for line in side.groups[0].lines] == [False, True, True]


def test_long_names_are_written_once_and_shortened_in_every_row() -> None:
    titles = ("a folder, whose name is long, <1>", "תוצאה שנייה, שם ארוך מאוד מאוד")
    (side,) = comparisons({title: model(0.2 + k) for k, title in enumerate(titles)})
    assert side.shown == ("A", "B")
    assert all(title in name for title, name in zip(titles, side.models, strict=True))
    assert {line.model for group in side.groups for line in group.lines} == {"A", "B"}
    assert side.words[0].startswith("Beyond the 95 % interval, B is higher in ")
    (side,) = comparisons({f"runs/of/this/very/long/week/seed-{k}": model(0.1 * k) for k in range(4)})
    assert side.shown == ("seed-0", "seed-1", "seed-2", "seed-3")
    assert len(comparisons({f"{'long ' * 8}{k}": model(0.1) for k in range(30)})[0].groups[0].lines) == 30


def test_many_layers_are_three_and_other_layers_are_not_compared() -> None:
    (deep,) = comparisons({"a": model(0.1, layers=9), "b": model(0.1, layers=9)})
    assert [group.place for group in deep.groups if "cosine" in group.head] == [
        "layer 0",
        "layer 4",
        "layer 8",
    ]
    tied = model(0.1)
    alike = [replace(f, index={"layer": "all"}) if f.name == "weight_cosine" else f for f in tied.findings]
    (mixed,) = comparisons({"a": model(0.1, layers=2), "b": replace(tied, findings=tuple(alike))})
    (group,) = (group for group in mixed.groups if "cosine" in group.head)
    assert group.place == "first to last layer"
    assert [line.interval for line in group.lines] == ["none: nothing is sampled"] * 2
    assert [line.tells for line in group.lines] == ["not compared: other layers"] * 2
    assert group.lines[0].control == "1 (constant predictor)"


def test_the_rule_that_explains_updates_is_named() -> None:
    (side,) = comparisons({"a": fitted(0.9), "b": fitted(0.8)})
    assert [group.head for group in side.groups] == ["updates explained by TD with three free weights (R2)"]


def fitted(r2: float) -> Result:
    """With one share of explained updates."""
    found = Finding(
        **{"name": "reparameterisation_r2", "estimate": r2, "unit": "1", "n": 64, "definition": "derived"},
        index={"layer": 0, "fit": "weights"},
        interval=(r2 - 0.01, r2 + 0.01),
        control=Control(name="exchanged rewards", estimate=-6.56),
    )
    return Result(kind="in-context-rl", findings=(found,))


def test_what_the_first_lacks_is_not_subtracted() -> None:
    bare = replace(model(0.1), findings=model(0.1).findings[1:])
    (side,) = comparisons({"a": bare, "b": model(0.5), "c": model(0.7)})
    error = side.groups[0]
    assert [(line.model, line.difference) for line in error.lines] == [("b", ""), ("c", "")]
    missing = [replace(f, estimate=None) if f.name == "within_chain_r2" else f for f in model(0.1).findings]
    (side,) = comparisons({"a": model(0.1), "b": replace(model(0.1), findings=tuple(missing))})
    (within,) = (group for group in side.groups if group.head.startswith("value differences"))
    assert within.lines[1].tells == "one of the two has no number"
    assert side.words[0].startswith("b differs from the first in nothing that has an interval.")


def test_one_model_is_not_compared() -> None:
    assert comparisons({"a": model(0.1), "b": Result(kind="costates")}) == []
    (side,) = comparisons({"a": model(0.1), "b": Result(kind="in-context-rl")})
    assert side.groups == ()


def language(objective: str, ratio: float) -> Result:
    index: dict[str, int | str] = {"objective": objective, "layer": 1}
    limits = (ratio - 0.1, ratio + 0.1)
    findings = [
        found("objective", objective),
        found("reward", ratio, limits),
        found("signal_to_noise", ratio, limits, **index),
        found("locality", 0.5, (0.4, 0.6), **index),
        found("cosine", 0.96, None, **index, against="enumerated"),
    ]
    findings += [found("cosine", 0.5, None, **index, against="relaxed")] if objective == "reward" else []
    return Result(kind="costates", findings=tuple(findings))


def test_costates_of_different_objectives_are_not_compared() -> None:
    (mixed,) = comparisons({"a": language("surrogate", 0.5), "b": language("reward", 5.0)})
    tells = {group.head: group.lines[1].tells for group in mixed.groups}
    other = "not compared: another objective"
    assert tells == {
        "mean reward": "excludes 0: higher",
        "objective": "not the same",
        "signal-to-noise": other,
        "locality": other,
        "cosine with the value gradient": other,
    }
    assert {group.lines[1].difference for group in mixed.groups[1:]} == {""}
    assert mixed.words == ("Beyond the 95 % interval, b is higher in mean reward.",)


def test_the_relaxed_sum_is_not_called_the_value_gradient() -> None:
    (alike,) = comparisons({"a": language("reward", 0.5), "b": language("reward", 0.5)})
    assert [group.quantity for group in alike.groups if "cosine" in group.head] == [
        "cosine with the value gradient, layer 1, against enumerated",
        "cosine with the relaxed sum over hops, layer 1, against relaxed",
    ]
    signal = next(group for group in alike.groups if group.head == "signal-to-noise")
    assert signal.lines[1].tells == "holds 0: cannot be told apart"


def test_rankings_of_other_series_are_named_and_not_compared() -> None:
    def ranking(series: str, step: str) -> Result:
        index = {"predictor": "impact", "target": "gain", "series": series}
        return Result(kind="impact", findings=(found("recommended", step, **index),))

    (side,) = comparisons({"a": ranking("x", "step-00000010"), "b": ranking("y", "step-00000020")})
    (group,) = side.groups
    assert group.place == "first to last series"
    assert [line.tells for line in group.lines] == ["not compared: other series"] * 2
    assert [line.estimate for line in group.lines] == ["x: step 10", "y: step 20"]
