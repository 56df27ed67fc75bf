"""The answers on costates: what they claim, for which objective, and what stands beside them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from valuelens.analyses import Control, CostateConfig, Finding, Result, costates
from valuelens.analyses.report._answer import Answer
from valuelens.analyses.report._answers_language import language_answers, language_headline

Make = Callable[..., Result]
TRUTH = "Does the mean costate point along the true value gradient?"


def card(result: Result, question: str) -> Answer:
    (found,) = (answer for answer in language_answers(result) if answer.question == question)
    return found


def cosine(estimate: float, interval: tuple[float, float] | None, control: float | None) -> Result:
    finding = Finding(
        **{"name": "cosine", "unit": "1", "n": 8, "definition": "derived", "estimate": estimate},
        index={"layer": 1, "against": "enumerated"},
        interval=interval,
        control=None if control is None else Control(name="permuted", estimate=control),
        reasons={"interval": "gap_discrete has one", "control": "nothing to permute"},
    )
    return Result(kind="costates", findings=(finding,))


@pytest.mark.parametrize(
    ("estimate", "interval", "control", "answer", "sure"),
    [
        (0.96, None, -0.08, "Yes", "no interval"),
        (0.96, None, None, "Yes", "no interval"),
        (0.5, None, 0.2, "In part", "no interval"),
        (0.5, None, -0.3, "No", "no interval"),
        (-0.5, None, None, "No", "no interval"),
        (0.95, (0.92, 0.97), 0.1, "Yes", "sure"),
        (0.93, (0.88, 0.97), 0.1, "In part", "not sure"),
        (0.5, (0.4, 0.6), 0.1, "In part", "sure"),
        (0.1, (-0.1, 0.3), 0.1, "Cannot be told", "not sure"),
        (-0.5, (-0.7, -0.3), 0.1, "No", "sure"),
    ],
)
def test_a_cosine_is_judged_by_its_interval_or_beside_its_control(
    estimate: float, interval: tuple[float, float] | None, control: float | None, answer: str, sure: str
) -> None:
    given = card(cosine(estimate, interval, control), TRUTH)
    assert (given.answer, given.sure) == (answer, sure)
    assert given.control == ("none: nothing to permute" if control is None else f"permuted: {control:.2f}")


def test_a_measured_update_points_along_the_true_value_gradient(copier: Any) -> None:
    """With 512 rollouts of a prompt the cosine is above .9; it has no interval, so the gap speaks."""
    rollouts = copier.sample(num_prompts=2, num_generations=512)
    config = CostateConfig(layers=("L//2",), micro_batch=256)
    result = costates(copier.model, rollouts, config, task=copier.task)
    given = card(result, TRUTH)
    assert (given.answer, given.sure) == ("Yes", "no interval")
    assert given.why.startswith("the cosine has no interval; the whole gap is ")
    assert "(noise of the mean alone: " in given.why


def test_every_claim_names_its_objective_and_none_is_the_value_gradient_of_another(
    language_result: Make,
) -> None:
    """A differentiable reward's costates estimate their own expectation, which lacks the sampling path."""
    result = language_result(objective="reward", enumerated=True)
    cards = {answer.question: answer for answer in language_answers(result)}
    assert len(cards) == 6
    assert "Can the sampled rewards of these rollouts teach anything?" in cards
    assert "Is there a signal above the noise?" in cards
    assert all("(objective: reward)" in each.found for each in list(cards.values())[1:])
    needed = cards["How many rollouts of a prompt does it need?"]
    assert "with their expectation, which lacks the sampling path" in needed.found
    assert language_headline(result) == (
        "The gradient of the differentiable reward, which lacks the sampling path, carries a signal to layer 15 that "
        "stands out of the noise (objective: reward)."
    )
    of_surrogate = card(language_result(), "How many rollouts of a prompt does it need?")
    assert "with the value gradient, at layer 15 (objective: surrogate)" in of_surrogate.found


def test_a_card_without_a_control_says_why(copier: Any) -> None:
    config = CostateConfig(objective="reward", layers=("L//2",))
    result = costates(copier.model, copier.sample(num_prompts=8), config, task=copier.task)
    cards = {answer.question: answer.control for answer in language_answers(result)}
    why = "none: no advantages of whole completions, in groups of more than two, to permute"
    assert (cards["Is there a signal above the noise?"], cards[TRUTH]) == (why, why)
    assert cards["What does the path through sampling add?"].startswith("none: gap_discrete stands beside it")
    assert all(cards.values())


def test_all_numbers_of_a_card_are_on_the_scale_of_its_answer(language_result: Make) -> None:
    """Credit from later tokens is what the share of the own token leaves: 0.2 there is 80 % here."""
    given = card(language_result(), "Does credit come from later tokens?")
    assert given.answer == "80% of it"
    assert given.control == "credit spread evenly over the tokens to come: 85% of it from later tokens"
    assert given.why == "95 % interval 78% to 82% from later tokens, over 32 groups"


def test_a_part_that_exceeds_the_whole_is_not_told_as_the_other_part_of_none(language_result: Make) -> None:
    made = language_result()
    more = tuple(
        replace(f, estimate=1.1, interval=(1.05, 1.2)) if f.name == "locality" else f for f in made.findings
    )
    given = card(replace(made, findings=more), "Does credit come from later tokens?")
    assert given.answer == "0% of it"
    part = "; the part of the next token alone is 110% of a costate, for the rest points against it"
    assert given.found.endswith(part)
    assert given.why == "95 % interval -20% to -5% from later tokens, over 32 groups"


def test_the_interval_of_a_gap_is_on_the_scale_of_the_gap(language_result: Make) -> None:
    made = language_result(objective="reward", enumerated=True)
    gap = next(f for f in made.findings if f.name == "gap_discrete" and f.index["layer"] == 15)
    assert gap.interval is not None
    given = card(made, TRUTH)
    assert f"95 % interval {gap.interval[0]:.0%} to {gap.interval[1]:.0%}, over 32 prompts" in given.why
    wide = tuple(replace(f, interval=(0.25, 0.5)) if f.name == "gap_relaxed" else f for f in made.findings)
    relaxed = card(replace(made, findings=wide), "What does the path through sampling add?")
    assert relaxed.why.endswith("; 95 % interval 25% to 50%, over 32 groups")


def test_the_interval_and_the_control_of_rewards_say_of_what_they_are(language_result: Make) -> None:
    given = card(language_result(), "Can these rollouts teach anything?")
    assert given.why == "17% to 27% of the groups have equal rewards (95 % interval, over 32 groups)"
    assert given.control == "of the mean reward, largest reward possible: 1"


def test_rollouts_needed_are_never_fewer_than_one(language_result: Make) -> None:
    strong = language_result(objective="reward")
    findings = tuple(
        replace(f, estimate=1351.0, interval=(517.0, 3078.0)) if f.name == "signal_to_noise" else f
        for f in strong.findings
    )
    given = card(replace(strong, findings=findings), "How many rollouts of a prompt does it need?")
    assert given.why == "95 % interval within rounding of 1, from that of the signal-to-noise"


def test_equal_sampled_rewards_take_nothing_from_a_differentiable_one(language_result: Make) -> None:
    def flat(objective: str) -> Result:
        made = language_result(objective=objective)
        findings = (
            replace(f, estimate=1.0) if f.name == "frac_reward_zero_std" else f for f in made.findings
        )
        return replace(made, findings=tuple(findings))

    assert language_headline(flat("surrogate")).startswith("These rollouts can teach nothing")
    assert language_headline(flat("reward")).startswith("The gradient of the differentiable reward")
    given = card(flat("reward"), "Can the sampled rewards of these rollouts teach anything?")
    assert given.answer == "No"
    assert "100% of the groups have equal sampled rewards" in given.found


def test_a_relaxed_gap_may_exceed_all_of_the_sum_and_says_nothing_of_chance(language_result: Make) -> None:
    made = language_result(objective="reward")
    wide = {"estimate": 1.4, "interval": (1.2, 1.6)}
    findings = (replace(f, **wide) if f.name == "gap_relaxed" else f for f in made.findings)
    given = card(replace(made, findings=tuple(findings)), "What does the path through sampling add?")
    assert (given.answer, given.sure) == ("140% of the relaxed sum", "no interval")
    assert "differs by so much" in given.found
    assert given.why.startswith("a size is never below 0")
