"""The verdict: who learned to evaluate states, told from hooks and tensors alone, and in which words."""

import math

import pytest
import torch
from torch import Tensor

from valuelens.analyses import Control, Finding, Result, learned_values, subject, value_errors, verdict
from valuelens.analyses._verdict import has_failed
from valuelens.models.icrl import (
    ModelConfig,
    SoftmaxTD,
    TaskConfig,
    ValueLearner,
    build,
    softmax_td_from_matrices,
    theta_star,
)

TASK = TaskConfig()
EACH = 50


def learned(model: ValueLearner) -> bool | None:
    """What the analysis says of a module: no configuration, name or training step is looked at."""
    return learned_values(
        Result(kind="in-context-rl", findings=tuple(value_errors(subject(model, TASK, num_tasks=64))))
    )


def pick(generator: torch.Generator, *options: object) -> object:
    return options[int(torch.randint(len(options), (), generator=generator))]


def uniform(generator: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def planted(generator: torch.Generator) -> SoftmaxTD:
    """theta* with random alpha and c >= 4: tied or not, with noise, behind a target scale, or as full matrices."""
    layers, tied = int(str(pick(generator, 3, 5, 10))), bool(pick(generator, 0, 1))
    alpha, c = uniform(generator, 0.5, 1.5, layers).tolist(), uniform(generator, 4, 12, layers).tolist()
    model = theta_star(
        feature_dim=TASK.feature_dim,
        num_layers=layers,
        gamma=TASK.gamma,
        alpha=alpha[0] if tied else alpha,
        sharpness=c[0] if tied else c,
        arch=pick(generator, "tsm", "dual"),
    )
    form = pick(generator, "exact", "noisy", "scaled", "full")
    with torch.no_grad():
        if form == "noisy":
            model.A_features += 0.5 * torch.randn(model.A_features.shape, generator=generator)
            model.w += 0.1 * torch.randn(model.w.shape, generator=generator)
        if model.arch == "dual":
            s = float(str(pick(generator, -2.0, -0.5, 3.0))) if form == "scaled" else 1.0
            model.w_target.copy_(model.w * torch.tensor([s, 1, s]))
            model.w[:, 1] /= s
        if form == "full":
            A = model.A + 0.02 * torch.randn(model.A.shape, generator=generator, dtype=torch.float64)
            return softmax_td_from_matrices(A, model.V, gamma=TASK.gamma, V_target=model.V_target)
    return model


def random(generator: torch.Generator) -> ValueLearner:
    """Gaussian weights of every form, at three scales."""
    config = ModelConfig.model_validate(
        {
            "arch": pick(generator, "tsm", "dual"),
            "weights": pick(generator, "restricted", "full", "factored"),
            "num_layers": pick(generator, 3, 5, 10),
            "tied": pick(generator, True, False),
        }
    )
    model, scale = build(config, TASK, generator).double(), float(str(pick(generator, 0.1, 0.3, 1.0)))
    with torch.no_grad():
        for parameter in model.parameters():
            wide = 1 if config.weights == "restricted" else 3 / math.sqrt(parameter.shape[-1])
            parameter.normal_(generator=generator).mul_(scale * wide)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 100])
def test_learners_are_told_from_random_models(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    models = [
        *((planted(generator), True) for _ in range(EACH)),
        *((random(generator), False) for _ in range(EACH)),
    ]
    order = torch.randperm(len(models), generator=generator).tolist()
    said = [learned(models[i][0]) for i in order]
    assert said == [models[i][1] for i in order]


def test_training_depth_and_step_size_decide() -> None:
    """Three steps of size .1 are hardly a beginning, ten of size .5 are enough."""
    few, enough = (
        theta_star(feature_dim=4, num_layers=layers, gamma=0.5, alpha=alpha, sharpness=6.0)
        for layers, alpha in ((3, 0.1), (10, 0.5))
    )
    assert (learned(few), learned(enough)) == (False, True)


def errors(versus: tuple[float, float], within: tuple[float, float], **index: int | str) -> list[Finding]:
    return [
        Finding(
            name=name,
            estimate=sum(interval) / 2,
            unit="1",
            n=9,
            definition="choice",
            interval=interval,
            index=index,
            control=Control(name="constant predictor", estimate=1.0),
        )
        for name, interval in (("context_msve_vs_constant", versus), ("within_chain_r2", within))
    ]


def weight(name: str, estimate: object, **index: int | str) -> Finding:
    why = {"interval": "weights", "control": "none", "estimate": "unidentified"}
    return Finding(
        name=name, estimate=estimate, unit="1", n=0, definition="derived", index=index, reasons=why
    )


def result(*findings: Finding, **model: str) -> Result:
    provenance = {"config": {"model": model}} if model else {}
    return Result(kind="in-context-rl", findings=findings, provenance=provenance)


@pytest.mark.parametrize(
    ("versus", "within", "answer"),
    [
        ((0.1, 0.2), (0.9, 0.95), True),
        ((0.1, 1.0), (0.9, 0.95), False),
        ((0.1, 0.99), (0.001, 0.95), True),
        ((0.1, 0.2), (0.0, 0.95), False),
        ((1.2, 1.4), (-3.0, -2.0), False),
    ],
)
def test_both_intervals_decide(
    versus: tuple[float, float], within: tuple[float, float], answer: bool
) -> None:
    assert learned_values(result(*errors(versus, within))) is answer


def test_without_intervals_there_is_no_answer() -> None:
    assert learned_values(result()) is None
    assert learned_values(result(errors((0.1, 0.2), (0.9, 0.95))[0])) is None
    why = {"interval": "too few tasks", "control": "none"}
    bare = [
        Finding(name=f.name, estimate=0.5, unit="1", n=1, definition="choice", reasons=why)
        for f in errors((0.1, 0.2), (0.9, 0.95))
    ]
    assert learned_values(result(*bare)) is None
    assert verdict(result(*bare)) == "Nothing was measured that supports a verdict."


TRAINED = (
    weight("sign_pattern", "++-"),
    weight("weight_cosine", 0.998),
    weight("effective_discount", 0.467),
    weight("reparameterisation_r2", 0.97, layer=0, fit="weights"),
    weight("reparameterisation_r2", 0.9999, layer=1, fit="weights"),
    weight("reparameterisation_r2", 0.2, layer=0, fit="function"),
)


def test_the_verdict_on_a_trained_model() -> None:
    assert verdict(result(*errors((0.1, 0.2), (0.9, 0.96)), *TRAINED)) == (
        "This model evaluates states in context: over the states of its contexts its squared value error is 0.15 of "
        "the constant predictor's (95 % interval 0.10 to 0.20) and it explains 0.93 of the differences within a chain "
        "(0.90 to 0.96). Its update weights have the TD signs ++- with cosine 0.998 to (1, 1, -1); weighted softmax TD "
        "with three free weights explains 0.97 to more than 0.999 of each layer's value updates on held-out tasks; its "
        "effective discount is 0.467."
    )


def test_the_verdict_on_an_untrained_model() -> None:
    untrained = (
        weight("sign_pattern", "+--", layer=1),
        weight("sign_pattern", "unidentified", layer=0),
        weight("weight_cosine", -0.25, layer=1),
        weight("weight_cosine", None, layer=0),
    )
    assert verdict(result(*errors((1.1, 1.5), (-0.1, 0.1)), *untrained)) == (
        "This model has not learned to evaluate states: over the states of its contexts its squared value error is "
        "1.30 of the constant predictor's (95 % interval 1.10 to 1.50) and it explains 0.00 of the differences within "
        "a chain (-0.10 to 0.10). Its update weights have the signs +--, not the ++- of TD, with cosine -0.25 to "
        "(1, 1, -1) (1 of 2 layers unidentified)."
    )


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        (("+++",), "have the signs +++, not the ++- of TD."),
        (("+--", "+--"), "have the signs +--, not the ++- of TD."),
        (("+--", "---"), "have the signs +-- and ---, not the ++- of TD."),
        (("++-", "+++", "++-"), "have the TD signs ++- in 2 of 3 identified layers, +++ in the others."),
        (("++-", "unidentified"), "have the TD signs ++- (1 of 2 layers unidentified)."),
    ],
)
def test_signs_are_told_layer_by_layer_only_where_layers_differ(layers: tuple[str, ...], said: str) -> None:
    findings = [weight("sign_pattern", signs, layer=k) for k, signs in enumerate(layers)]
    assert verdict(result(*findings)) == f"Its update weights {said}"


@pytest.mark.parametrize(
    ("versus", "within", "failed", "said"),
    [
        ((0.9, 1.05), (-0.02, 0.2), False, "Whether this model evaluates states cannot be told: over"),
        ((0.1, 0.2), (-0.02, 0.2), False, "Whether this model evaluates states cannot be told: over"),
        ((1.01, 1.05), (0.1, 0.2), True, "This model has not learned to evaluate states: over"),
        ((0.1, 0.2), (-0.2, -0.02), True, "This model has not learned to evaluate states: over"),
        ((0.1, 0.2), (0.8, 0.9), False, "This model evaluates states in context: over"),
    ],
)
def test_only_an_interval_on_the_wrong_side_says_no(
    versus: tuple[float, float], within: tuple[float, float], failed: bool, said: str
) -> None:
    measured = result(*errors(versus, within))
    assert has_failed(measured) is failed
    assert verdict(measured).startswith(said)


def test_the_verdict_on_unidentified_weights() -> None:
    assert verdict(result(weight("sign_pattern", "unidentified"))) == (
        "Its weights are not identified layer by layer, so only the functional distance speaks."
    )


def test_the_form_says_nothing_where_it_is_given() -> None:
    """An untrained restricted model with the shift module scores 1 too; a free target head can disagree."""
    findings = (*errors((0.1, 0.2), (0.9, 0.95)), *TRAINED)
    assert "held-out tasks" not in verdict(result(*findings, arch="tsm", weights="restricted"))
    for arch, weights in (("dual", "restricted"), ("tsm", "full"), ("tsm", "factored")):
        assert "held-out tasks" in verdict(result(*findings, arch=arch, weights=weights))


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ((0.9999, 1.0), "explains more than 0.999 of"),
        ((0.99951,), "explains more than 0.999 of"),
        ((0.9, 0.99951), "explains 0.9 to more than 0.999 of"),
        ((0.5, 0.75), "explains 0.5 to 0.75 of"),
        ((0.75, 0.7500001), "explains 0.75 of"),
        ((-0.5, 0.99), "explains -0.5 to 0.99 of"),
    ],
)
def test_shares_are_not_rounded_to_all(scores: tuple[float, ...], words: str) -> None:
    fits = [weight("reparameterisation_r2", score, layer=k, fit="weights") for k, score in enumerate(scores)]
    assert words in verdict(result(weight("sign_pattern", "++-"), *fits))


def test_the_verdict_on_a_run_is_on_its_last_checkpoint() -> None:
    def at(step: str, seed: int, sign: str, versus: tuple[float, float]) -> list[Finding]:
        index = {"checkpoint": step, "seed": seed}
        return [*errors(versus, (0.9, 0.95), **index), weight("sign_pattern", sign, **index)]

    dated = weight("emergence_step", 3, property="signs ++-", seed=1)
    run = result(
        dated,
        *at("step-00000000", 1, "+--", (1.5, 2.5)),
        *at("step-00002000", 1, "++-", (0.1, 0.2)),
        *at("step-00000300", 1, "-+-", (0.6, 0.8)),
        *at("step-00009000", 2, "---", (3.0, 4.0)),
    )
    assert "evaluates states in context" in verdict(run)
    assert "0.15 of the constant" in verdict(run)
    assert "have the TD signs ++-." in verdict(run)
    assert learned_values(run, checkpoint="step-00000000") is False


def test_an_interval_of_a_verdict_never_reads_as_a_point() -> None:
    narrow = result(*errors((0.9, 1.2), (-0.00056, 0.00087)))
    assert "of the differences within a chain (-0.001 to 0.001)" in verdict(narrow)
    assert "(95 % interval 0.90 to 1.20)" in verdict(narrow)


def limit(word: str, *numbers: float | None) -> Finding:
    return Finding(
        name="bottleneck",
        estimate=word,
        unit="word",
        n=8,
        definition="choice",
        control=Control(name="errors", estimate=list(numbers)),
        reasons={"interval": "a word", "control": "untied"},
    )


def grown(factor: float | None) -> Finding:
    return Finding(
        name="depth_extrapolation",
        estimate=factor,
        unit="1",
        n=8,
        definition="choice",
        index={"depth": 60, "trained": 10},
        reasons={"interval": "none", "control": "none", "estimate": "it diverges"},
    )


def test_the_verdict_names_the_limit_with_what_it_costs() -> None:
    text = verdict(result(limit("context", 0.08, 0.07, 0.02, 0.075)))
    assert "What limits its values most is the length of its contexts" in text
    assert (
        "its squared error, over all states weighted by the stationary distribution, would be 0.02 instead of 0.08 of "
        "the mean squared true value" in text
    )
    assert "its learned weights" in verdict(result(limit("weights", 0.08, None, 0.02, 0.01)))
    assert "limits" not in verdict(result(limit("none", 0.08, 0.08, 0.08, 0.08)))


def test_the_verdict_tells_which_form_of_softmax_td_was_read_or_fitted() -> None:
    read = weight("opaque_reading", "not decodable")
    assert verdict(result(read)) == (
        "Its residual stream read for weighted softmax TD with one step size: not decodable."
    )
    rules = [
        weight("rule_error", error, rule=rule, scored="end to end")
        for rule, error in (("weighted softmax TD", 0.011), ("linear TD", 0.5))
    ]
    assert verdict(result(weight("algorithm", "none of these"), *rules)).endswith(
        "end to end weighted softmax TD with three free weights comes closest, missing 0.011 of its squared last "
        "values."
    )


def test_the_verdict_warns_of_depth_beyond_the_trained() -> None:
    assert "At 60 layers instead of 10 its error is 35.5 times as large" in verdict(result(grown(35.53)))
    assert "must not be run deeper" in verdict(result(grown(None)))
    assert "deeper" not in verdict(result(grown(0.85)))
