"""Phrases of findings on a ranking of checkpoints: its scores, the gains, and how well these were foretold."""

from valuelens.analyses._question import Phrase


def _gained(x: float) -> str:
    return "" if x > 0 else ", so RL did not help"


def _the_best(x: float) -> str:
    return ", that is, it is the best one in these runs" if x == 0 else ""


def _nothing(x: float) -> str:
    return "" if x > 0 else ", so nothing can be gained by re-weighting what it already does"


def _unread(x: float) -> str:
    return "" if x > 0 else ", so the update has no direction that can be told from noise"


CHOICE = {
    "recommended": Phrase(
        noun="the checkpoint that {predictor} recommends for the most {target}",
        text="by {predictor}, RL should start at {x} for the most {target}",
        beside="{name}: {c}",
        sampled="checkpoints",
    ),
    "probability_best": Phrase(
        noun="the probability that the choice of {predictor} brings the most {target}",
        text="the probability that the choice of {predictor} brings the most {target} is {x}",
        beside="for {name} it is {c}",
        sampled="checkpoints",
    ),
    "regret": Phrase(
        noun="the regret of {predictor} in {target}",
        text="the choice of {predictor} falls {x} short of the best checkpoint in {target}",
        beside="{name}: {c}",
        sampled="checkpoints",
        comment=_the_best,
    ),
    "scoring_cost": Phrase(
        noun="the cost of scoring",
        text="scoring costs {x} {unit}",
        beside="{name}: {c}",
        sampled="checkpoints",
    ),
}

ARC = {
    "signal": Phrase(
        noun="the signal",
        text="the signal that an update carries is {x}",
        beside="{name}: {c}",
        sampled="rollouts",
        comment=_unread,
    ),
    "headroom": Phrase(
        noun="the headroom",
        text="the headroom is {x}",
        beside="{name}: {c}",
        sampled="rollouts",
        comment=_nothing,
    ),
    "impact": Phrase(
        noun="the score", text="signal x headroom is {x}", beside="{name}: {c}", sampled="rollouts"
    ),
    "update_aligned": Phrase(
        noun="the update-aligned signal",
        text="the update-aligned signal is {x}",
        beside="{name}: {c}",
        sampled="rollouts",
    ),
    "pass_at_k": Phrase(
        noun="pass@k minus pass@1",
        text="pass@k is {x} above pass@1",
        beside="{name}: {c}",
        sampled="rollouts",
    ),
    "gradient_norm": Phrase(
        noun="the norm of the update's gradient",
        text="the gradient of the update has norm {x}",
        beside="{name}: {c}",
        sampled="rollouts",
    ),
    "held_out_loss": Phrase(
        noun="the held-out loss",
        text="the loss on held-out text is {x} {unit}",
        beside="{name}: {c}",
        sampled="texts",
    ),
    "gain": Phrase(
        noun="the realised gain",
        text="RL gained {x} in reward",
        beside="{name}: {c}",
        sampled="RL seeds",
        comment=_gained,
    ),
    "gain_cut": Phrase(
        noun="the gain without credit through time",
        text="with credit through time cut, RL gained {x} in reward",
        beside="{name}: {c}",
        sampled="RL seeds",
    ),
    "credit_gain": Phrase(
        noun="what credit through time adds to the gain",
        text="credit through time adds {x} to the gain",
        beside="{name}: {c}",
        sampled="RL seeds",
    ),
    "final_reward": Phrase(
        noun="the reward after RL",
        text="after RL the mean reward is {x}",
        beside="{name}: {c}",
        sampled="RL seeds",
    ),
    "predicted_gain": Phrase(
        noun="the predicted gain",
        text="fitted on the other checkpoints, the score predicts a gain of {x}",
        beside="{name}: {c}",
        sampled="RL seeds",
    ),
}

JUDGEMENT = {
    "spearman_difference": Phrase(
        noun="the difference between {predictor} and the best rival",
        text="the Spearman correlation of {predictor} with {target} minus that of the best rival ({rival}, chosen "
        "{chosen}) is {x}",
        beside="{name}: {c}",
        sampled="checkpoints",
    ),
    "spearman": Phrase(
        noun="the Spearman correlation of {predictor} with {target}",
        text="the Spearman correlation of {predictor} with {target} is {x}",
        beside="best rival, {name}: {c}",
        sampled="checkpoints",
    ),
    "spearman_partial": Phrase(
        noun="the Spearman correlation of {predictor} with {target}, given the reward before RL,",
        text="given the reward before RL, the Spearman correlation of {predictor} with {target} is {x}",
        beside="best rival, {name}: {c}",
        sampled="checkpoints",
    ),
    "loo_error": Phrase(
        noun="the leave-one-out error of {predictor}",
        text="fitted on the other checkpoints, {predictor} misses the gain by {x} (root mean square)",
        beside="the {name} misses it by {c}",
        sampled="checkpoints",
    ),
}
