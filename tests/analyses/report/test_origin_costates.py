"""Where a result on a language model comes from is told as far as it was recorded."""

from collections.abc import Callable

from valuelens.analyses import Result
from valuelens.analyses.report._origin import model_words, origin_words, sources
from valuelens.analyses.report._origin_costates import language_model_subject

Make = Callable[..., Result]


def test_model_rollouts_sampling_and_update_are_told(language_result: Make) -> None:
    assert model_words(language_result(loss_type="dapo", scale_rewards="group", groups=2)) == [
        "Model: HuggingFaceTB/SmolLM2-135M-Instruct (llama), 30 layers, width 576, 134,515,008 parameters",
        f"Rollouts: 32 in 2 groups, {tokens(language_result, 2)} tokens sampled; generated from the task addition",
        "Sampling: temperature 0.70, top-k 50",
        "Update: loss type dapo, baseline group-mean, advantages scaled by group",
    ]


def tokens(language_result: Make, groups: int) -> int:
    return int(language_result(groups=groups).provenance["rollouts"]["tokens"])


def test_the_origin_is_told(language_result: Make) -> None:
    result = language_result(command="valuelens costates x")
    told = origin_words(result, "")
    for line in (
        f"Weights: sha256 {'ab' * 32}",
        "Loaded from: revision main",
        "Rollouts: generated from the task addition",
        "Seed: 0",
        "Precision: measured in float32",
        "Device: cpu",
        "Versions: torch 2, transformers 5",
        "Command: valuelens costates x",
        "Took: 81.2 s",
    ):
        assert line in told
    assert sources(result) == (("value gradients in critic-free RL", "2605.21654"),)


def test_weights_are_told_as_they_came_about(language_result: Make) -> None:
    told = model_words(language_result(weights="rewards minus their group's mean", loss_type="bnpo"))
    assert told[-1] == "Weights of tokens: rewards minus their group's mean; loss type bnpo"
    assert model_words(language_result(weights="as logged"))[-1] == "Weights of tokens: as logged"


def test_numbers_agree_with_their_nouns(language_result: Make) -> None:
    one = language_result(groups=1).provenance
    assert "on 16 rollouts of 1 prompt." in language_model_subject(one)
    sampled = language_result(sampling={"temperature": 1.0, "top_k": 0, "top_p": 1.0})
    assert "Sampling: temperature 1, from all tokens" in model_words(sampled)
    sampled = language_result(sampling={"temperature": 1.0, "top_k": 5, "top_p": 0.9})
    assert "Sampling: temperature 1, top-k 5, top-p 0.9" in model_words(sampled)


def test_nothing_recorded_is_nothing_told() -> None:
    bare = Result(kind="costates")
    assert (model_words(bare), origin_words(bare, "")) == ([], [])
    assert language_model_subject({}) == (
        "Shown is one checkpoint of a language model. It was measured as it is: nothing was trained."
    )
