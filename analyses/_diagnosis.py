"""Why is my reward flat? What rollouts can teach, looked at before any costate is taken."""

import math
from dataclasses import dataclass, replace

import pandas as pd
import torch

from valuelens.analyses._result import Control, Finding, Result
from valuelens.models import InputError
from valuelens.models.lm import LanguageModel, Rollouts
from valuelens.probe import (
    LOG_PROB_MISMATCH_LIMIT,
    Interval,
    TokenScores,
    best_of_k,
    log_prob_mismatch,
    mean_interval,
    share_interval,
)

_HALF_SLACK = 5
"""Measured in bfloat16: a median of .026 nats between sampling and scoring."""

_K = 8
_CUT = 0.5
_NARROW = 0.1
_PROMPT_LETTERS = 200
_ALONE = "a property of the rollouts, which stands beside nothing"


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Diagnosis:
    """What the rollouts can teach.

    Attributes:
        sentence: In words.
        has_variance: Whether rewards (without them, advantages) differ within some group.
        mismatch: Median difference of logged and recomputed log-probabilities in nats a token; none without a log.
        result: Findings, named as trainers name them, and the tables `groups` and `rollouts`.
    """

    sentence: str
    has_variance: bool
    mismatch: float | None
    result: Result

    @property
    def told(self) -> Result:
        """The result with the sentence for a verdict."""
        findings = tuple(each for each in self.result.findings if each.name != "diagnosis")
        return replace(self.result, verdict=self.sentence, findings=findings)

    def __str__(self) -> str:
        return str(self.told)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.told._repr_html_()


def diagnosis(
    language_model: LanguageModel, rollouts: Rollouts, scores: TokenScores, *, seed: int = 0
) -> Diagnosis:
    """Rewards within and between groups, entropy, lengths, truncation, best of k, and what they mean.

    Args:
        language_model: That scored the rollouts.
        rollouts: In groups of at least two.
        scores: Of their tokens under the model, with the sampling that they were drawn with.
        seed: Of the intervals.
    """
    vocabulary = int(language_model.model.config.get_text_config().vocab_size)
    rows = _rows(rollouts, scores)
    groups = _groups(rows, language_model, rollouts)
    sentence = _sentence(rows, groups, rollouts.reward_range, uniform=math.log(vocabulary))
    mismatch = _mismatch(rollouts, scores)
    findings = [
        _alone("diagnosis", sentence, "words", len(groups), "words"),
        *(_reward_findings(rows, groups, rollouts, seed) if rollouts.rewards is not None else []),
        *([_zero_share(groups)] if rollouts.rewards is not None else []),
        _entropy(groups, seed, uniform=math.log(vocabulary)),
        _alone("completion_length", float(rows.length.mean()), "tokens", len(rows), "single rollouts differ"),
        _alone(
            "truncated_share", float((~rows.ended).mean()), "1", len(rows), "rollouts of a group are alike"
        ),
        _mismatch_finding(mismatch, len(rows)),
    ]
    tables = {
        "groups": groups.drop(columns="spread"),
        "rollouts": rows.drop(columns=["length", "entropy"]),  # what `--rollouts` reads again
    }
    return Diagnosis(
        sentence=sentence,
        has_variance=bool((groups.spread > 0).any()),
        mismatch=mismatch,
        result=Result(kind="costates", findings=tuple(findings), tables=tables, skipped=rollouts.skipped),
    )


def refuse_other_policy(found: Diagnosis, rollouts: Rollouts, language_model: LanguageModel) -> None:
    """Refuse rollouts that another policy sampled.

    What was sampled here in half precision may differ more: with a key-value cache its states round otherwise.

    Args:
        found: With the mismatch.
        rollouts: Sampled here, or read.
        language_model: That scored them.

    Raises:
        InputError: Logged and recomputed log-probabilities differ too much.
    """
    rounded = rollouts.prompts is not None and language_model.model.dtype.itemsize < 4
    limit = LOG_PROB_MISMATCH_LIMIT * (_HALF_SLACK if rounded else 1)
    if found.mismatch is not None and not found.mismatch <= limit:
        must = f"logged log-probabilities must be this model's, within {limit:g} nats a token (median)"
        hint = "another checkpoint, or another temperature, top-k or top-p, sampled these rollouts"
        raise InputError(must, f"found {found.mismatch:.3g} ({hint})", rollouts.source or "rollouts")


def _rows(rollouts: Rollouts, scores: TokenScores) -> pd.DataFrame:
    """A line for each rollout, in the form that `--rollouts` reads again."""
    length = [len(tokens) for tokens in rollouts.completion_ids]
    entropy = [
        float(each[:n].mean()) if n else math.nan for each, n in zip(scores.entropy, length, strict=True)
    ]
    log_probs = [each[:n].tolist() for each, n in zip(scores.log_prob, length, strict=True)]
    table = pd.DataFrame(
        {
            "group": rollouts.group,
            "prompt_ids": [list(each) for each in rollouts.prompt_ids],
            "completion_ids": [list(each) for each in rollouts.completion_ids],
            "ended": rollouts.ended,
            "length": length,
            "entropy": entropy,
            "log_probs": log_probs,
        }
    )
    if rollouts.rewards is not None:
        table["reward"] = rollouts.rewards
    elif rollouts.advantages is not None:
        table["advantage"] = [list(each) for each in rollouts.advantages]
    return table


def _groups(rows: pd.DataFrame, language_model: LanguageModel, rollouts: Rollouts) -> pd.DataFrame:
    """A line for each prompt."""
    by_group = rows.groupby("group", sort=True)
    table = pd.DataFrame(
        {
            "group": list(by_group.groups),
            "prompt": [_prompt(language_model, ids) for ids in by_group.prompt_ids.first()],
            "n": by_group.size().to_numpy(),
        }
    )
    if rollouts.rewards is not None:
        for name in ("mean", "std", "min", "max"):
            table[f"reward_{name}"] = by_group.reward.agg(name).to_numpy()
        # exact: a mean of equal rewards may round, and a standard deviation with it
        table["spread"] = table.reward_max - table.reward_min
        table.loc[(table.spread == 0) & (table.n > 1), "reward_std"] = 0.0
    elif rollouts.advantages is None:
        table["spread"] = 0.0
    else:
        largest = rows.advantage.map(lambda each: max(map(abs, each), default=0.0))
        table["spread"] = largest.groupby(rows.group).max().to_numpy()
    table["entropy"] = by_group.entropy.mean().to_numpy()
    table["length"] = by_group.length.mean().to_numpy()
    return table


def _prompt(language_model: LanguageModel, ids: list[int]) -> str:
    if language_model.tokenizer is None:
        return " ".join(map(str, ids))[:_PROMPT_LETTERS]
    return str(language_model.tokenizer.decode(ids))[:_PROMPT_LETTERS]


def _sentence(
    rows: pd.DataFrame, groups: pd.DataFrame, reward_range: tuple[float, float] | None, *, uniform: float
) -> str:
    varied, total = int((groups.spread > 0).sum()), len(groups)
    if "reward" not in rows and "advantage" not in rows:
        return "The rollouts hold neither rewards nor advantages."
    what = "rewards" if "reward" in rows else "advantages"
    if varied == total:
        said = [f"{what.capitalize()} differ within every one of {total} groups."]
    elif varied:
        said = [f"{what.capitalize()} differ within {varied} of {total} groups; the others teach nothing."]
    else:
        said = [f"No group has {what} that differ: an update that compares them is exactly zero."]
    if varied < total:
        said += _why_equal(rows, groups[groups.spread == 0], reward_range)
    cut, entropy = float((~rows.ended).mean()), float(groups.entropy.mean())
    if cut > _CUT and rows.ended.any():
        said.append(f"{cut:.0%} of the completions were cut at their greatest length before they ended.")
    if entropy < _NARROW * uniform:
        said.append(f"The policy is narrow: {entropy:.3g} nats of entropy, of at most {uniform:.3g}.")
    return " ".join(said)


def _why_equal(rows: pd.DataFrame, flat: pd.DataFrame, reward_range: tuple[float, float] | None) -> list[str]:
    if "reward" not in rows:
        return []
    low, high = reward_range or (rows.reward.min(), rows.reward.max())
    if low == high:
        return [f"Every completion was given the same reward, {low:g}: look at the reward function first."]
    worst, best = int((flat.reward_max == low).sum()), int((flat.reward_min == high).sum())
    said = []
    if worst:
        said.append(f"In {worst} every completion got the least reward, {low:g}: no better one was sampled.")
    if best:
        said.append(f"In {best} every completion got the largest, {high:g}: there is nothing left to gain.")
    return said


def _reward_findings(
    rows: pd.DataFrame, groups: pd.DataFrame, rollouts: Rollouts, seed: int
) -> list[Finding]:
    k = min(_K, int(groups.n.min()))
    best = rows.groupby("group").reward.agg(lambda each: best_of_k(torch.tensor(each.to_numpy()).double(), k))
    mean = float(rows.reward.mean())
    largest = None if rollouts.reward_range is None else rollouts.reward_range[1]
    return [
        _over_groups(
            "reward",
            groups.reward_mean,
            Control(name="largest reward possible", estimate=largest),
            rollouts,
            seed,
        ),
        _over_groups(
            "reward_std",
            groups.reward_std,
            Control(name="standard deviation over all rollouts", estimate=float(rows.reward.std())),
            rollouts,
            seed,
        ),
        _over_groups("best_of_k", best, Control(name="mean reward", estimate=mean), rollouts, seed, k=k),
    ]


def _within(interval: Interval | None, low: float, high: float) -> Interval | None:
    """An interval cut to what is possible."""
    return interval and (max(low, interval[0]), min(high, interval[1]))


def _over_groups(
    name: str, values: pd.Series, control: Control, rollouts: Rollouts, seed: int, **index: int
) -> Finding:
    sample = torch.tensor(values.dropna().to_numpy())
    low, high = rollouts.reward_range or (-math.inf, math.inf)
    limits = (0.0, high - low) if name == "reward_std" else (low, high)
    interval = _within(mean_interval(sample, seed=seed), *limits)
    reasons = {
        "estimate": "every group has one rollout",
        "interval": "too few groups, or no spread between them",
        "control": "the range of rewards was not declared",
    }
    return Finding(
        name=name,
        estimate=float(sample.mean()) if len(sample) else None,
        unit="reward",
        n=len(sample),
        definition="derived",
        index=index,
        interval=interval,
        control=control,
        reasons=reasons,
    )


def _zero_share(groups: pd.DataFrame) -> Finding:
    zero = int((groups.spread == 0).sum())
    return Finding(
        name="frac_reward_zero_std",
        estimate=zero / len(groups),
        unit="1",
        n=len(groups),
        definition="derived",
        interval=share_interval(zero, len(groups)),
        reasons={"control": _ALONE},
    )


def _entropy(groups: pd.DataFrame, seed: int, *, uniform: float) -> Finding:
    sample = torch.tensor(groups.entropy.dropna().to_numpy())
    interval = _within(mean_interval(sample, seed=seed), 0.0, uniform)
    return Finding(
        name="entropy",
        estimate=float(sample.mean()) if len(sample) else None,
        unit="nats",
        n=len(sample),
        definition="derived",
        interval=interval,
        control=Control(name="uniform policy", estimate=uniform),
        reasons=({} if interval else {"interval": "too few groups, or no spread between them"})
        | ({} if len(sample) else {"estimate": "every completion is empty"}),
    )


def _mismatch(rollouts: Rollouts, scores: TokenScores) -> float | None:
    if rollouts.log_probs is None or not any(map(len, rollouts.log_probs)):
        return None
    logged = torch.zeros_like(scores.log_prob)
    valid = torch.zeros_like(scores.log_prob, dtype=torch.bool)
    for row, each in enumerate(rollouts.log_probs):
        logged[row, : len(each)] = torch.tensor(each, dtype=logged.dtype)
        valid[row, : len(each)] = True
    valid &= logged.isfinite()
    return log_prob_mismatch(scores.log_prob, logged, valid) if bool(valid.any()) else None


def _mismatch_finding(mismatch: float | None, count: int) -> Finding:
    return Finding(
        name="log_prob_mismatch",
        estimate=mismatch,
        unit="nats a token",
        n=count,
        definition="choice",
        control=Control(name="refused above", estimate=LOG_PROB_MISMATCH_LIMIT),
        reasons={"interval": "a median over tokens of the same rollouts"}
        | ({} if mismatch is not None else {"estimate": "the rollouts hold no logged log-probabilities"}),
    )


def _alone(name: str, estimate: str | float, unit: str, n: int, why: str) -> Finding:
    return Finding(
        name=name,
        estimate=estimate,
        unit=unit,
        n=n,
        definition="derived",
        reasons={"interval": why, "control": _ALONE},
    )
