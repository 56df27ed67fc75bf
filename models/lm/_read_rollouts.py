"""Rollouts that somebody else sampled, read from parquet: TRL's logs, or files with token ids."""

import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from typing import TypeVar

from transformers import PreTrainedTokenizerBase

from valuelens.models._errors import InputError
from valuelens.models.lm._read_config import ReadConfig
from valuelens.models.lm._rollout_files import RolloutTable, reward_columns, rollout_tables
from valuelens.models.lm._rollout_rows import RolloutRow, rollout_rows
from valuelens.models.lm._rollouts import Rollouts, Tokens
from valuelens.models.lm._tokenisation import end_tokens

_UNEXPLAINED = 0.01
"""Share of logged advantages, or their size where they are small, that may differ from those recomputed."""

T = TypeVar("T")


def read_rollouts(source: str, tokenizer: PreTrainedTokenizerBase | None, config: ReadConfig) -> Rollouts:
    """Rollouts from a parquet file, a pattern of files, or TRL's output folder.

    Columns: `prompt_ids` or `prompt` (a text, or a chat, to which the template is applied), `completion_ids` or
    `completion`, one column for each reward, `advantage` (a number, or a list aligned with the completion), and, if
    there, `group`, `step`, `completion_mask`, `values`, `log_probs` or `logprobs`, `ended` (whether the completion
    is whole). Nothing else is opened: no pickle.

    * Reward: the sum of its columns; one that is missing (a reward function had no opinion) is left out of the sum, as
      TRL does, and a row without any is skipped. Where there are rewards, `advantage` as a number is not read: it is
      recomputed; if it follows from no scale of that sum (a trainer's weights of rewards are not in its log), that is
      listed under `skipped`. Where there are none, it is taken, and its scale is lost.
    * Group: rows of a file that share `group` (and `step`); else rows that share `step` and prompt, the file standing
      for a missing `step`. A rollout alone in its group has no baseline: all alone is an error, some are skipped;
      with advantages for each token, `values` or no rewards none is needed.
    * End: in a text the end-of-sequence token is not shown. `auto` (our definition) appends it where a list aligned
      with the completion is one longer than its text, and, without such a list, where the text has fewer tokens than
      `max_completion_length`: a sampler stops for no other reason. The longest completion counts as cut if that length
      is not given. Of token ids, those behind an end are dropped if they repeat it or are padding.
    * `completion_mask`: ones for the completion's tokens, zeros behind them; all zeros leave it out of the loss.

    Args:
        source: Where they lie.
        tokenizer: Of the model; none where there are token ids only.
        config: The model's sizes and what the files do not say.

    Raises:
        InputError: A file, column or value that cannot be used; one line that names it.
    """
    tables = rollout_tables(source)
    rewards = reward_columns(tables, config.rewards, config.reward_targets)
    config = config if config.stops is not None else replace(config, stops=end_tokens(tokenizer))
    read = [rollout for table in tables for rollout in rollout_rows(table, tokenizer, rewards, config)]
    _same_prompts(read)
    kept, skipped = _usable(read, source)
    skipped += _unexplained(kept, rewards)
    summed = f", rewards: {' + '.join(rewards)}" if rewards else ""
    return _joined(kept, skipped, f"{len(kept)} rows of {_files(tables)}{summed}")


def _files(tables: list[RolloutTable]) -> str:
    return (
        tables[0].path
        if len(tables) == 1
        else f"{len(tables)} files from {tables[0].path} to {tables[-1].path}"
    )


def _same_prompts(read: list[RolloutRow]) -> None:
    first: dict[Hashable, RolloutRow] = {}
    for each in read:
        if first.setdefault(each.key, each).prompt != each.prompt:
            found = f"found another than in row {first[each.key].cell.number}"
            raise InputError("rows of a group must have the same prompt", found, each.cell.where("group"))


def _usable(read: list[RolloutRow], source: str) -> tuple[list[RolloutRow], list[dict[str, str]]]:
    """Rows that can be used, those of a group together, and what is wrong with the others."""
    skipped = []
    scored = [each for each in read if each.reward is None or not math.isnan(each.reward)]
    if not scored:
        raise InputError("a rollout must have a reward", "found none that is a number", source)
    for each in read:
        if each.reward is not None and math.isnan(each.reward):
            skipped.append(_skipped(each, "no reward is a number"))
    n = Counter(each.key for each in scored)
    needed = [
        each for each in scored if each.reward is not None and each.advantages is None and each.values is None
    ]
    alone = [each for each in needed if n[each.key] == 1]
    if alone and len(alone) == len(scored):
        found = "found one in each (n_group = 1)"
        raise InputError("a group must have at least two rollouts", found, source)
    skipped += [_skipped(each, "it is alone in its group (n_group = 1)") for each in alone]
    left_out = {id(each) for each in alone}
    kept = [each for each in scored if id(each) not in left_out]
    skipped += [
        _skipped(each, "the completion is empty and contributes zero") for each in kept if not each.completion
    ]
    order = {key: i for i, key in enumerate(dict.fromkeys(each.key for each in kept))}
    return sorted(kept, key=lambda each: order[each.key]), skipped


def _unexplained(kept: list[RolloutRow], columns: list[str]) -> list[dict[str, str]]:
    """What is to be said if logged advantages are no multiple of rewards minus their mean, in some group."""
    groups: dict[Hashable, list[tuple[float, float]]] = {}
    for each in kept:
        if each.logged_advantage is not None and each.reward is not None:
            groups.setdefault(each.key, []).append((each.logged_advantage, each.reward))
    for pairs in groups.values():
        mean = sum(reward for _, reward in pairs) / len(pairs)
        centred = [reward - mean for _, reward in pairs]
        spread = sum(each * each for each in centred)
        ratio = sum(a * c for (a, _), c in zip(pairs, centred, strict=True)) / spread if spread else 0.0
        rest = sum((a - ratio * c) ** 2 for (a, _), c in zip(pairs, centred, strict=True))
        if rest > _UNEXPLAINED**2 * max(1.0, sum(a * a for a, _ in pairs)):
            why = (
                f"does not follow from the sum of {', '.join(columns)}: were they weighted, or groups others?"
            )
            return [{"what": "column advantage", "why": why}]
    return []


def _skipped(each: RolloutRow, why: str) -> dict[str, str]:
    return {"what": f"{each.cell.path}, row {each.cell.number}", "why": why}


def _joined(kept: list[RolloutRow], skipped: list[dict[str, str]], source: str) -> Rollouts:
    order = {key: i for i, key in enumerate(dict.fromkeys(each.key for each in kept))}
    return Rollouts(
        prompt_ids=tuple(each.prompt for each in kept),
        completion_ids=tuple(each.completion for each in kept),
        group=tuple(order[each.key] for each in kept),
        ended=tuple(each.ended for each in kept),
        rewards=_all([each.reward for each in kept], "rewards", kept),
        log_probs=_all([each.log_probs for each in kept], "log_probs", kept),
        advantages=_all([each.advantages for each in kept], "advantage", kept),
        advantages_scaled=any(
            each.advantages is not None and not isinstance(each.cell.row.get("advantage"), list)
            for each in kept
        ),
        values=_all([each.values for each in kept], "values", kept),
        targets=_all([each.targets for each in kept], "targets", kept),
        mask=None if all(each.counted for each in kept) else tuple(map(_mask, kept)),
        skipped=tuple(skipped),
        source=source,
    )


def _all(values: list[T | None], column: str, kept: list[RolloutRow]) -> tuple[T, ...] | None:
    """The column, if every row has a value; none, if no row has."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    if len(there) < len(values):
        without = next(each for each, value in zip(kept, values, strict=True) if value is None)
        raise InputError("every row or none must have a value", "found none", without.cell.where(column))
    return tuple(there)


def _mask(row: RolloutRow) -> Tokens:
    return (int(row.counted),) * len(row.completion)
