"""What a checkpoint is worth before any RL is run: signal, headroom, their product, and rivals on the same rollouts."""

import math
from collections import Counter
from statistics import fmean

import torch

from valuelens.analyses._costate_config import chosen_layers
from valuelens.analyses._diagnosis import diagnosis, refuse_other_policy
from valuelens.analyses._request import blamed
from valuelens.analyses.impact._config import ScoreConfig
from valuelens.analyses.impact._discrete_gap import discrete_gap
from valuelens.analyses.impact._hop_signal import HopSignal, hop_signal
from valuelens.analyses.impact._passes import passes
from valuelens.analyses.impact._tables import SCORES
from valuelens.models import InputError
from valuelens.models.icrl import one_thread
from valuelens.models.lm import LanguageModel, Rollouts
from valuelens.probe import (
    best_of_k_gain,
    pass_at_k_gain,
    sequences,
    shortfall,
    tilt,
    usable,
)

HALF_LEAST = 4
"""Rollouts of a group that `usable` needs: two in each half, so that each has a baseline."""


def score(
    language_model: LanguageModel,
    rollouts: Rollouts,
    config: ScoreConfig | None = None,
    *,
    held_out_loss: float | None = None,
    reward_range: tuple[float, float] | None = None,
) -> dict[str, float]:
    """A row of `SCORES`, without series, checkpoint and step; not a number where something is not asked or not there.

    Impact = signal x headroom (theory B6; paper B, Eq. 29, gives neither formula, so that both are our definition).
    Only the signal of the configuration is taken, and `update_aligned`, which stands beside every ranking. Groups whose
    rewards are equal count with signal 0, headroom 0. Headroom and rivals are of the sampled rewards, `subtractive` is
    of the objective `reward`: the mean probability of the right tokens.

    `token_passes`: tokens of prompts and completions times the passes made of them, 1 forward, 2 backward, to
    parameters or activations alike; and 1 for each token of a completion and of a distinct prompt sampled here.

    Args:
        language_model: The checkpoint.
        rollouts: Its own, with rewards, in groups of at least two.
        config: Variants and sizes.
        held_out_loss: Nats a token on held-out text, if known.
        reward_range: Least and largest reward, for rewards whose range is not declared; those of these rollouts
            if none.

    Raises:
        InputError: There are no rewards or another policy sampled the rollouts; a group is too small; a signal that was
            asked for cannot be had; a gradient is not finite, or missing where rewards differ.
    """
    config = config or ScoreConfig()
    signal = _checked(rollouts, config)
    with one_thread():  # so that the last bit does not depend on how many there are
        found = _measured(language_model, rollouts, config, signal)
    low, high = _range(rollouts, reward_range)
    found |= _of_rewards(rollouts, config, low, high)
    found["held_out_loss"] = math.nan if held_out_loss is None else held_out_loss
    found["signal"] = found[f"signal_{signal.replace('-', '_')}"]
    found["headroom"] = found[f"headroom_{config.headroom.replace('-', '_')}"]
    found["impact"] = found["signal"] * found["headroom"]
    found["update_aligned"] = found["signal_update_aligned"]
    return {name: found[name] for name in SCORES if name in found}


def _measured(
    language_model: LanguageModel, rollouts: Rollouts, config: ScoreConfig, signal: str
) -> dict[str, float]:
    """All that needs the model."""
    layer = _layer(language_model, config)
    batch = sequences(rollouts.prompt_ids, rollouts.completion_ids)
    wanted = {"usable", "subtractive"} if config.every_variant else {signal}
    start = "usable" in wanted and min(Counter(rollouts.group).values()) >= HALF_LEAST
    hops, gap, gap_tokens = HopSignal.none(), math.nan, 0
    with blamed(language_model.name):
        made = passes(language_model, rollouts, batch, config, layer=layer, start=start)
        diagnosed = diagnosis(language_model, rollouts, made.scores, seed=config.seed)
        refuse_other_policy(diagnosed, rollouts, language_model)
        if "subtractive" in wanted and rollouts.targets is not None:
            hops = hop_signal(language_model, rollouts, batch, config, made)
        if hops.reached:
            gap, gap_tokens = discrete_gap(language_model, rollouts, layer, config.sampling)
    said = {finding.name: finding.estimate for finding in diagnosed.result.findings}
    return {
        "prompts": float(len(set(rollouts.group))),
        "rollouts": float(len(rollouts)),
        **{name: _number(said[name]) for name in ("reward", "reward_std", "frac_reward_zero_std", "entropy")},
        "gradient_norm": made.gradient_norm,
        "signal_subtractive": hops.signal,
        "signal_usable": math.nan if made.halves is None else usable(made.halves, made.start_stream),
        "signal_update_aligned": made.aligned,
        "gap_relaxed": hops.gap,
        "gap_discrete": gap,
        "token_passes": float(made.tokens + hops.tokens + gap_tokens),
    }


def _layer(language_model: LanguageModel, config: ScoreConfig) -> int:
    (layer,) = chosen_layers((config.layer,), language_model.num_layers)
    if layer == language_model.num_layers:
        must = f"--layer must lie below the number of layers, {layer}"
        raise InputError(must, f"found {config.layer}", "option --layer")
    return layer


def _checked(rollouts: Rollouts, config: ScoreConfig) -> str:
    """The signal that is taken."""
    where = rollouts.source or "rollouts"
    if rollouts.rewards is None:
        found = "found neither" if rollouts.advantages is None else "found advantages only"
        raise InputError("a score needs the rewards of its rollouts", found, where)
    if not all(map(math.isfinite, rollouts.rewards)):
        row = next(i for i, reward in enumerate(rollouts.rewards) if not math.isfinite(reward))
        raise InputError("a reward must be a number", f"found {rollouts.rewards[row]}", f"{where}, row {row}")
    sizes = Counter(rollouts.group)
    alone = min(sizes, key=lambda group: sizes[group])
    if sizes[alone] < 2:
        must = "a group must have at least two rollouts (n_group = 1 has no baseline)"
        raise InputError(must, f"found 1 in group {alone}", where)
    signal = config.signal
    if signal == "auto":
        signal = "usable" if rollouts.targets is None else "subtractive"
    if signal == "subtractive" and rollouts.targets is None:
        must = "--signal subtractive needs right tokens: a task with answers, or --reward-targets COLUMN"
        raise InputError(must, "found none", where)
    if signal == "usable" and sizes[alone] < HALF_LEAST:
        must = f"--signal usable needs {HALF_LEAST} rollouts of a prompt, two in each half"
        raise InputError(must, f"found {sizes[alone]} in group {alone}", where)
    if signal == "update-aligned" and len(sizes) < 2:
        raise InputError("--signal update-aligned needs two prompts, one in each half", "found one", where)
    return signal


def _range(rollouts: Rollouts, given: tuple[float, float] | None) -> tuple[float, float]:
    rewards = rollouts.rewards or ()
    return rollouts.reward_range or given or (min(rewards), max(rewards))


def _of_rewards(rollouts: Rollouts, config: ScoreConfig, low: float, high: float) -> dict[str, float]:
    """Headrooms and rivals that are functions of rewards: means over prompts."""
    rewards, group = torch.tensor(rollouts.rewards, dtype=torch.float64), torch.tensor(rollouts.group)
    each = [rewards[group == one] for one in group.unique()]
    k = min(config.k, *map(len, each))
    best = fmean(best_of_k_gain(some, k) for some in each)
    return {
        "best_of_k": best,
        "pass_at_k": fmean(pass_at_k_gain(some, k, success=high) for some in each),
        "headroom_tilt": fmean(tilt(some, beta=config.beta, reward_range=high - low) for some in each),
        "headroom_shortfall": fmean(shortfall(some) for some in each),
        "headroom_best_of_k": best,
    }


def _number(found: object) -> float:
    return float(found) if isinstance(found, int | float) else math.nan
