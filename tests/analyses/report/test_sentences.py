"""Every finding has a sentence with its number, its control and its reason; numbers never claim more than they know."""

import re

import pytest

from valuelens.analyses import Control, Finding, result_schema
from valuelens.analyses._questions import SECTIONS
from valuelens.analyses.report._notes import TITLES
from valuelens.analyses.report._numbers import interval_words, readable
from valuelens.analyses.report._phrases import PHRASES, sections_of
from valuelens.analyses.report._plates import PLATES
from valuelens.analyses.report._sentences import (
    is_missing,
    sentence,
    shown,
    shown_control,
    shown_interval,
    told_once,
)

NAMES = result_schema()["$defs"]["finding_name"]["enum"]
LISTS = {"value_lens": [1.0, 0.54321, 0.12345], "weights": [1.34, 1.27, -1.41]}
CONTROL_LISTS = {
    "value_lens": [1.0, 2.0, 3.25],
    "weights": [1.0, 1.0, -1.0],
    "emergence_step": [0.111, 0.613],
}
INDEX = {"layer": 2, "reference": "true value", "matrix": "A", "property": "signs", "fit": "weights"}

each_name = pytest.mark.parametrize("name", NAMES)


def finding(name: str, **changes: object) -> Finding:
    """A finding of that name with everything that a finding can have."""
    estimate = "++-" if name == "sign_pattern" else LISTS.get(name, 0.98765)
    fields: dict[str, object] = {
        "name": name,
        "estimate": 159 if name == "emergence_step" else estimate,
        "unit": "1",
        "n": 256,
        "definition": "choice",
        "index": {
            "layer": 2,
            "fit": "weights",
            "matrix": "A",
            "reference": "true value",
            "property": "diagonal",
        },
        "interval": (0.91234, 0.99123),
        "control": Control(name="the control", estimate=CONTROL_LISTS.get(name, 0.45678)),
        "reasons": {},
    }
    return Finding(**{**fields, **changes})


@each_name
def test_every_name_has_a_sentence_and_a_section(name: str) -> None:
    assert name in PHRASES
    assert [section for section, names in sections_of([]).items() if name in names] != []


def test_sections_of_ours_are_kept_from_installed_questions() -> None:
    """Those that findings stand in, those that figures stand in, and the last."""
    drawn = {each.section for each in PLATES.values()}
    assert {*sections_of([]), *drawn, *TITLES} <= SECTIONS


@each_name
def test_a_sentence_has_number_interval_control_n_and_standing(name: str) -> None:
    found = finding(name)
    text = sentence(found)
    for part in (shown(found), shown_interval(found), shown_control(found), "256", "our definition"):
        assert part
        assert part in text
    assert text[0] in f'"{text[0].upper()}'
    assert text.endswith(").")
    assert not re.search(r"[{}]|None|nan", text)


@each_name
def test_a_sentence_without_a_number_gives_the_reason_and_the_control(name: str) -> None:
    reasons = {"estimate": "the layer does not move the values", "interval": "no estimate"}
    found = finding(name, estimate=None, interval=None, reasons=reasons)
    text = sentence(found)
    assert reasons["estimate"] in text
    assert shown_control(found) in text
    assert "256" not in text


@each_name
def test_a_sentence_without_a_control_gives_the_reason(name: str) -> None:
    why = "not applicable: nothing is estimated"
    assert f"no control: {why}" in sentence(finding(name, control=None, reasons={"control": why}))


def test_a_control_without_a_number_gives_the_reason() -> None:
    other = Control(name="the rule with exchanged rewards", estimate=None)
    text = sentence(finding("functional_distance", control=other, reasons={"control": "it diverges"}))
    assert "; for the rule with exchanged rewards there is none (it diverges)" in text


def test_a_sentence_reads_like_one() -> None:
    cosine = finding(
        "weight_cosine",
        estimate=0.98851,
        n=0,
        definition="derived",
        index={"layer": 2},
        interval=None,
        control=Control(name="95 % quantile of random directions", estimate=0.9),
        reasons={"interval": "nothing is sampled"},
    )
    assert sentence(cosine) == (
        "Layer 2's update weights point along the TD direction (1, 1, -1) with cosine 0.989; "
        "95 % of random directions stay below 0.90."
    )


def test_a_costate_names_its_objective_and_words_keep_one_full_stop() -> None:
    found = finding("signal_to_noise", estimate=0.02, index={"objective": "reward", "layer": 15}, n=1)
    assert sentence(found).startswith(
        "In layer 15, the reward costate at the shared start state has a signal"
    )
    assert sentence(found).endswith("(1 group; our definition).")
    words = finding("diagnosis", estimate="All is flat.", index={}, interval=None, reasons={"interval": "-"})
    assert sentence(words).startswith("In short: All is flat; the control: ")
    assert "the best of 8 rollouts" in sentence(finding("best_of_k", index={"k": 8})).lower()
    assert "the enumerated value gradient" in sentence(finding("cosine", index={"against": "enumerated"}))


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({"layer": 0}, "Layer 0's update"),
        ({"layer": "all"}, "The tied layers' update"),
        ({}, "The model's update"),
        ({"layer": 1, "head": 3}, "Layer 1, head 3's update"),
    ],
)
def test_the_place_is_named(index: dict[str, int | str], words: str) -> None:
    assert sentence(finding("weight_cosine", index=index)).startswith(words)


def test_seed_and_checkpoint_are_named() -> None:
    text = sentence(finding("coverage", index={"seed": 3, "checkpoint": "step-00000045"}))
    assert "(step 45; seed 3; 256 tasks; our definition)" in text


def test_recommendations_rest_on_checkpoints() -> None:
    text = sentence(
        finding("recommended", estimate="step-00000154", interval=None, reasons={"interval": "-"})
    )
    assert text.endswith("(256 checkpoints; our definition).")


def test_the_order_of_properties_is_no_median_of_one_seed() -> None:
    text = sentence(finding("emergence_order", estimate=["a", "b"], interval=None, reasons={"interval": "-"}))
    assert text.startswith(
        "Properties appear in this order, by their step (of several seeds the median): (1) a; (2) b"
    )


def test_unidentified_is_said_with_its_reason() -> None:
    found = finding("sign_pattern", estimate="unidentified", interval=None, reasons={"interval": "-"})
    assert is_missing(found)
    assert "is unidentified: an entry that it needs has exactly zero gradient" in sentence(found)
    reasons = {"interval": "-", "estimate": "why"}
    partly = finding("weights", estimate=[2.06, None, None], interval=None, reasons=reasons)
    assert "w_R = 2.06, w_T unknown, w_C unknown (why)" in sentence(partly)


def test_second_hand_equations_are_marked() -> None:
    assert "second-hand equation" in sentence(finding("assumption_margin", definition="audit"))
    assert "our definition" not in sentence(finding("assumption_margin", definition="derived"))


@pytest.mark.parametrize(
    ("name", "estimate", "words"),
    [
        ("assumption_margin", -0.5, "does not hold (it is sufficient, not necessary)"),
        ("assumption_margin", 0.1, "the assumption holds"),
        ("contraction_norm", 1.7, "above 1 says nothing about contraction"),
        ("contraction_norm", 0.7, "below 1 an update contracts"),
        ("spectral_radius", 1.2, "need not vanish"),
        ("spectral_radius", 0.7, "below 1 they vanish"),
        ("reparameterisation_r2", -2.0, "worse than predicting no change"),
        ("within_chain_r2", -2.0, "worse than predicting no difference"),
        ("effective_discount", 0.4, "to which the cosine is blind"),
        ("frac_reward_zero_std", 1.0, "every advantage is 0 and nothing is learnt"),
        ("frac_reward_zero_std", 0.25, "and those teach nothing"),
        ("reward_std", 0.0, "so nothing tells rollouts apart"),
        ("signal_to_noise", -0.01, "not above 0: no signal was seen"),
        ("regret", 0.0, "short of the best checkpoint in gain, that is, it is the best one in these runs"),
        (
            "log_prob_mismatch",
            0.0,
            "nats a token (median), that is, for at least half of the tokens not at all",
        ),
    ],
)
def test_the_size_of_a_number_is_explained(name: str, estimate: float, words: str) -> None:
    assert words in sentence(finding(name, estimate=estimate))


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        (
            "reparameterisation_r2",
            {},
            "Softmax TD with three free weights, fitted with the layer's own attention, ",
        ),
        ("functional_distance", {}, "differ from those of TD with one fitted step size a layer by "),
        (
            "value_lens",
            {"reference": "TD iterate"},
            "(weighted softmax TD with one fitted step size a layer), the ",
        ),
        (
            "credit_adjoint_gap",
            {"weights": "fitted"},
            "with the weights (alpha, alpha, -alpha) of one step size, ",
        ),
        ("credit_adjoint_gap", {"weights": "own"}, "passed back with the layer's own update weights, "),
    ],
)
def test_two_forms_of_softmax_td_are_told_apart(name: str, more: dict[str, str], said: str) -> None:
    found = finding(name, index={"layer": 2, "fit": "weights", **more})
    assert said in sentence(found)


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("value_lens", "read at the query state is off by"),
        ("msve_ratio", "at the query state is 0.988"),
        ("msve_vs_constant", "at the query state is 0.988"),
        ("context_msve_vs_constant", "Over the states of the contexts, each as often as it is visited, "),
        ("depth_error", "over the states that a context leaves (all columns but the query), "),
        ("bottleneck", "as the control, over all states weighted by the stationary distribution: "),
        ("fixed_point_error", "over all states weighted by the stationary distribution, "),
    ],
)
def test_squared_errors_say_over_which_states_they_are_taken(name: str, states: str) -> None:
    assert states in sentence(finding(name))


def test_an_r2_far_below_zero_is_told_as_a_multiple_of_the_baseline() -> None:
    below = Control(name="exchanged rewards", estimate=-12418.5)
    said = "with exchanged rewards its squared error is 12,420 times that of no update (256"
    assert said in sentence(finding("reparameterisation_r2", control=below))
    above = Control(name="exchanged rewards", estimate=0.25)
    assert "with exchanged rewards it explains 0.25" in sentence(
        finding("reparameterisation_r2", control=above)
    )


def test_errors_of_several_lengths_stand_with_their_lengths_and_one_reason() -> None:
    index = {"contexts": "that visit every state", "lengths": "15, 30, 60, 120"}
    why = {"estimate": "too few contexts", "control": "too few contexts", "interval": "-"}
    chain = Control(name="value of the empirical chain", estimate=[None, None, None, 0.169])
    found = finding(
        "context_error",
        **{"index": index, "estimate": [None, None, None, 0.932], "interval": None, "control": chain},
        reasons=why,
    )
    assert sentence(found) == (
        "In contexts that visit every state, the largest error over their states is on average, by the number of "
        "transitions, 0.932 at 120, not known at 15, 30 and 60 (too few contexts); the value of the empirical chain is "
        "off by 0.169 at 120, not known at 15, 30 and 60 (256 tasks; our definition)."
    )


def test_numbers_that_are_missing_for_one_reason_are_told_once() -> None:
    def missing(predictor: str, why: str) -> Finding:
        return finding(
            "probability_best",
            estimate=None,
            interval=None,
            index={"predictor": predictor, "target": "gain"},
            reasons={"estimate": why, "interval": why},
        )

    rest = [missing("reward", "nothing was run"), finding("regret")]
    found = [*(missing(each, "one RL seed") for each in ("impact", "entropy", "signal")), *rest]
    assert told_once(found) == [
        "The probability that the choice of ... brings the most gain has no number: one RL seed; for the control it is "
        "0.457 (our definition). So it is for 3: signal x headroom (the score); entropy; signal alone.",
        *map(sentence, rest),
    ]
    assert told_once(found[:2]) == [sentence(each) for each in found[:2]]


def test_what_rounds_to_one_was_not_measured_as_one() -> None:
    found = finding("reparameterisation_r2", estimate=1.0, interval=(1.0, 1.0))
    assert ">0.999 (95 % interval above 0.999)" in sentence(found)
    assert "1 to 1" not in sentence(found)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (None, "none"),
        ("++-", "++-"),
        (1311, "1,311"),
        (1.0, "1"),
        (0.0, "0"),
        (0.5, "0.50"),
        (0.28973, "0.290"),
        (0.99999, "1.00"),
        (2.0600, "2.06"),
        (12.345, "12.3"),
        (0.00871, "0.0087"),
        (-0.00058, "-0.00058"),
        (-0.000031, "-3.1e-5"),
        (1e-12, "<1e-9"),
        (-1e-12, ">-1e-9"),
        (-12418.5, "-12,418"),
    ],
)
def test_numbers_are_readable(x: float | int | str | None, words: str) -> None:
    assert readable(x) == words


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((0.1503, 0.433), "0.150 to 0.433"),
        ((1.0739, 1.0744), "1.0739 to 1.0744"),
        ((0.3, 0.3), "within rounding of 0.30"),
        ((-0.5, 0.0), "-0.50 to 0"),
    ],
)
def test_intervals_never_read_as_a_point(ends: tuple[float, float], words: str) -> None:
    assert interval_words(*ends) == words


def test_every_finding_of_a_kind_nobody_thought_of_is_still_told() -> None:
    text = sentence(finding("brand_new"))
    assert text.startswith("Layer 2's brand new is 0.988 (95 % interval 0.912 to 0.991); the control: 0.457")
