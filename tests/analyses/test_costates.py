"""Costates of rollouts, end to end: what must hold of every finding, and what is refused."""

import dataclasses
from typing import Any

import pytest
import torch

from valuelens.analyses import CostateConfig, Finding, Result, Update, costates, result_schema
from valuelens.models import InputError

SEVERAL = CostateConfig(layers=("0", "L//2", "L-1", "L"))


def one(result: Result, name: str, **index: int | str) -> Finding:
    (finding,) = result.find(name, **index)
    return finding


@pytest.fixture(scope="module")
def result(copier: Any) -> Result:
    return costates(copier.model, copier.sample(num_prompts=8), SEVERAL, task=copier.task)


def test_every_layer_has_every_finding(result: Result) -> None:
    for name in ("costate_norm", "locality", "signal_to_noise", "standard_error", "rollouts_needed"):
        assert [each.index["layer"] for each in result.find(name)] == [0, 2, 3, 4], name
        assert {each.index["objective"] for each in result.find(name)} == {"surrogate"}
    assert set(result.tables["positions"].layer) == {0, 2, 3, 4}
    assert result.arrays["start_costate"].values.shape == (8, 4, 16)
    result.summary()  # fits the schema
    assert "diagnosis" in result_schema()["$defs"]["finding_name"]["enum"]


def test_credit_is_local_after_the_final_norm_and_at_the_last_token(result: Result) -> None:
    assert one(result, "locality", layer=4).estimate == pytest.approx(1, abs=1e-5)
    table = result.tables["positions"]
    last = table[table.state == 1]
    torch.testing.assert_close(
        torch.tensor(last.locality.to_numpy()), torch.ones(4, dtype=torch.float64), rtol=0, atol=1e-5
    )
    assert 0 < one(result, "locality", layer=0).estimate < 0.999  # type: ignore[operator]


def test_it_points_along_the_true_value_gradient_and_permuted_advantages_do_not(copier: Any) -> None:
    """With 512 rollouts of a prompt, what is missed is what the noise explains."""
    rollouts = copier.sample(num_prompts=2, num_generations=512)
    result = costates(
        copier.model, rollouts, CostateConfig(layers=("0", "L//2"), micro_batch=256), task=copier.task
    )
    for layer in (0, 2):
        cosine, gap = (one(result, name, layer=layer) for name in ("cosine", "gap_discrete"))
        assert cosine.control is not None
        assert gap.control is not None
        assert cosine.estimate > 0.9  # type: ignore[operator]
        assert abs(cosine.control.estimate) < 0.4  # type: ignore[arg-type]
        assert gap.estimate < 3 * gap.control.estimate  # type: ignore[operator]
        signal = one(result, "signal_to_noise", layer=layer)
        assert signal.control is not None
        assert signal.estimate > 10 * abs(signal.control.estimate)  # type: ignore[arg-type, operator]


def test_a_differentiable_reward_is_backpropagated_and_never_mixed(copier: Any) -> None:
    """Its mean costate is that of the mean probability of right tokens, by plain autograd; advantages play no part."""
    rollouts = copier.sample()
    config = CostateConfig(objective="reward", layers=("L//2",))
    result = costates(copier.model, rollouts, config, task=copier.task)
    model, expected = copier.model.model, []
    for prompt, completion, answer in zip(
        rollouts.prompt_ids, rollouts.completion_ids, rollouts.targets, strict=True
    ):
        leaf = model.get_input_embeddings()(torch.tensor([[*prompt, *completion]])).requires_grad_()
        output = model(inputs_embeds=leaf, output_hidden_states=True)
        states = output.logits[0, len(prompt) - 1 : -1].softmax(-1)
        reward = states.gather(-1, torch.tensor(answer)[:, None]).mean()
        (gradient,) = torch.autograd.grad(reward, output.hidden_states[2])
        expected.append(gradient[0, len(prompt) - 1])
    means = torch.stack(expected).reshape(4, 8, -1).mean(1).double()
    torch.testing.assert_close(result.arrays["start_costate"].values[:, 0], means, rtol=1e-4, atol=1e-7)
    assert one(result, "objective").estimate == "reward"
    assert one(result, "cosine", against="enumerated").control is None
    assert 0 < one(result, "cosine", against="enumerated").estimate <= 1  # type: ignore[operator]


@pytest.mark.parametrize("micro_batch", [1, 5])
def test_the_size_of_a_pass_changes_nothing(copier: Any, result: Result, micro_batch: int) -> None:
    config = dataclasses.replace(SEVERAL, micro_batch=micro_batch)
    again = costates(copier.model, copier.sample(num_prompts=8), config, task=copier.task)
    for left, right in zip(result.findings, again.findings, strict=True):
        if isinstance(left.estimate, float):
            assert right.estimate == pytest.approx(left.estimate, rel=1e-4, abs=1e-7), left.name
    torch.testing.assert_close(
        again.arrays["start_costate"].values, result.arrays["start_costate"].values, rtol=1e-4, atol=1e-7
    )


def test_both_baselines_are_the_same_once_the_group_mean_is_corrected(copier: Any) -> None:
    rollouts = copier.sample()
    found = [
        costates(copier.model, rollouts, CostateConfig(update=Update(baseline=baseline)))
        for baseline in ("group-mean", "leave-one-out")
    ]
    left, right = (each.arrays["start_costate"].values for each in found)
    torch.testing.assert_close(left, right)
    assert found[0].provenance["weights"] == "rewards minus their group's mean, times n / (n - 1)"


def test_factors_as_trained_scale_costates_and_leave_no_gap_to_compare(copier: Any) -> None:
    rollouts = copier.sample()
    plain = costates(copier.model, rollouts, CostateConfig(), task=copier.task)
    config = CostateConfig(update=Update(loss_type="dapo"))
    trained = costates(copier.model, rollouts, config, task=copier.task)
    left, right = (each.arrays["start_costate"].values for each in (trained, plain))
    # 1 over the 64 tokens of 32 rollouts, and no n / (n - 1) for groups of 8
    torch.testing.assert_close(left, right * (7 / 8 / 64))
    assert one(trained, "gap_discrete", layer=0).estimate is None


def test_prompts_have_norms_and_nothing_else(copier: Any) -> None:
    result = costates(copier.model, copier.sample(), CostateConfig(positions="prompt"), task=copier.task)
    assert {each.name for each in result.findings} >= {"costate_norm", "objective"}
    assert not result.find("locality") + result.find("signal_to_noise") + result.find("cosine")
    assert result.tables["positions"].state.max() == 3  # five tokens, the last of which is the shared state


def test_advantages_of_tokens_are_taken_as_they_are(copier: Any) -> None:
    """Per-token advantages that are all alike give the costates of one advantage a completion."""
    rollouts = copier.sample()
    rewards = torch.tensor(rollouts.rewards).reshape(-1, 8)
    advantages = ((rewards - rewards.mean(1, keepdim=True)) * 8 / 7).flatten().tolist()
    logged = dataclasses.replace(rollouts, rewards=None, advantages=tuple((a, a) for a in advantages))
    found = costates(copier.model, logged, CostateConfig())
    expected = costates(copier.model, rollouts, CostateConfig())
    left, right = (each.arrays["start_costate"].values for each in (found, expected))
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)
    assert one(found, "signal_to_noise", layer=0).control is None
    assert found.provenance["weights"] == "advantages as logged"


def test_values_of_a_critic_make_generalised_advantages(copier: Any) -> None:
    rollouts = copier.sample()
    rollouts = dataclasses.replace(rollouts, values=tuple((0.5, 0.5) for _ in rollouts.group))
    result = costates(copier.model, rollouts, CostateConfig())
    assert str(result.provenance["weights"]).startswith("generalised advantages from rewards")


@pytest.mark.parametrize("objective", ["surrogate", "reward"])
def test_asked_in_full_every_part_of_a_costate_has_its_head(copier: Any, objective: Any) -> None:
    """Shares of heads and paths and the own token's share add up to 1, whatever is maximised."""
    config = CostateConfig(objective=objective, layers=("0", "L//2", "L"), full=True)
    result = costates(copier.model, copier.sample(), config)
    shares = result.tables["heads"].groupby("layer").share.sum()
    for layer in (0, 2):
        own = one(result, "locality", layer=layer).estimate
        assert shares[layer] + own == pytest.approx(1, abs=1e-4)
    assert bool(result.find("bound_tightness")) == (objective == "reward")
    for finding in result.find("bound_tightness"):
        assert 0 < finding.estimate <= 1  # type: ignore[operator]
        assert finding.control is not None
        assert finding.control.estimate == 0  # states that violate it
    result.summary()


def test_half_precision_measures_the_same_up_to_its_rounding(copier: Any) -> None:
    import copy

    half = dataclasses.replace(copier.model, model=copy.deepcopy(copier.model.model).bfloat16())
    rollouts = dataclasses.replace(copier.sample(), log_probs=None)
    exact, rounded = (costates(model, rollouts, CostateConfig()) for model in (copier.model, half))
    left, right = (each.arrays["start_costate"].values.flatten() for each in (exact, rounded))
    assert torch.cosine_similarity(left, right, dim=0) > 0.99
    assert rounded.provenance["dtype"] == "measured in bfloat16"


def test_what_cannot_be_measured_is_refused(copier: Any) -> None:
    rollouts = copier.sample()
    said: list[str] = []
    flat = dataclasses.replace(rollouts, rewards=tuple(0.0 for _ in rollouts.group))
    with pytest.raises(InputError, match="some group must have rewards that differ") as caught:
        costates(copier.model, flat, CostateConfig(), said=lambda found: said.append(found.sentence))
    assert "no better one was sampled" in str(caught.value)
    assert said[0].startswith(
        "No group has rewards that differ: an update that compares them is exactly zero."
    )
    blind = dataclasses.replace(rollouts, targets=None)
    with pytest.raises(InputError, match="a differentiable reward needs right tokens"):
        costates(copier.model, blind, CostateConfig(objective="reward"))
    nothing = dataclasses.replace(rollouts, rewards=None)
    with pytest.raises(InputError, match="rollouts must hold rewards, or advantages; found neither"):
        costates(copier.model, nothing, CostateConfig())
    assert costates(copier.model, nothing, CostateConfig(objective="reward")).find("costate_norm")
    other = dataclasses.replace(rollouts, prompts=None, log_probs=tuple((-3.0, -3.0) for _ in rollouts.group))
    with pytest.raises(InputError, match=r"must be this model's, within 0.02 nats a token \(median\); found"):
        costates(copier.model, other, CostateConfig())


def test_a_model_that_is_not_finite_is_refused_in_one_line(copier: Any) -> None:
    import copy

    model = copy.deepcopy(copier.model.model)
    rollouts = copier.sample()
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = torch.nan
    broken = dataclasses.replace(copier.model, model=model)
    with pytest.raises(InputError, match="logits must be numbers; found NaN"):
        costates(broken, rollouts, CostateConfig())
