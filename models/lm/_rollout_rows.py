"""The rows of one file of rollouts, each with all that it says."""

import math
from collections.abc import Hashable
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from valuelens.models._errors import InputError
from valuelens.models.lm._read_config import ReadConfig
from valuelens.models.lm._rollout_cells import Cell, Numbers
from valuelens.models.lm._rollout_ends import left_out, whole_completion
from valuelens.models.lm._rollout_files import RolloutTable
from valuelens.models.lm._rollouts import Tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutRow:
    """One row, read.

    Attributes:
        cell: Where it stands.
        prompt: Tokens of the prompt.
        completion: Tokens of the completion, its end included.
        key: Of its group.
        ended: Whether it ended by itself.
        reward: Sum of its rewards, NaN if none is there; none where there is no column.
        advantages: One for each token.
        logged_advantage: The one of the whole completion, where there are rewards to compare it with.
        values: One for each token.
        log_probs: One for each token.
        targets: One for each token.
        counted: Whether the loss counts it.
    """

    cell: Cell
    prompt: Tokens
    completion: Tokens
    key: Hashable
    ended: bool
    reward: float | None
    advantages: Numbers | None
    logged_advantage: float | None
    values: Numbers | None
    log_probs: Numbers | None
    targets: Tokens | None
    counted: bool


def rollout_rows(
    table: RolloutTable,
    tokenizer: PreTrainedTokenizerBase | None,
    rewards: list[str],
    config: ReadConfig,
) -> list[RolloutRow]:
    """Every row of a file.

    Args:
        table: The file.
        tokenizer: Of the model; none where there are token ids only.
        rewards: Columns whose sum is the reward.
        config: The model's sizes and what the file does not say; `stops` are known.

    Raises:
        InputError: A value that cannot be used, with its file, column and row.
    """
    cells = [
        Cell(row=row, path=table.path, number=i, vocabulary=config.vocabulary, tokenizer=tokenizer)
        for i, row in enumerate(table.table.to_pylist())
    ]
    completions = [cell.completion() for cell in cells]
    texts = [
        len(tokens) for cell, tokens in zip(cells, completions, strict=True) if not cell.has("completion_ids")
    ]
    longest = config.max_completion_length or max(texts, default=0)
    return [
        _rollout(cell, tokens, longest, rewards, config)
        for cell, tokens in zip(cells, completions, strict=True)
    ]


def _rollout(cell: Cell, read: Tokens, longest: int, rewards: list[str], config: ReadConfig) -> RolloutRow:
    aligned, width = _aligned_lists(cell), len(read)
    read = whole_completion(cell, read, {len(each) for each in aligned.values()}, longest, config)
    prompt = cell.prompt()
    if config.context_window is not None and len(prompt) + len(read) > config.context_window:
        must = f"prompt and completion must fit the context window of {config.context_window} tokens"
        raise InputError(must, f"found {len(prompt)} + {len(read)}", f"{cell.path}, row {cell.number}")
    stops = config.stops or ()
    lists = {name: _fitted(cell, name, each, len(read), width) for name, each in aligned.items()}
    advantages = lists.get("advantage")
    if advantages is None and not rewards and "advantage" in cell.row:
        advantages = (_advantage(cell),) * len(read)
    return RolloutRow(
        cell=cell,
        prompt=prompt,
        completion=read,
        key=_key(cell, prompt),
        ended=_said_to_end(cell) or (bool(read) and read[-1] in stops),
        reward=_reward(cell, rewards) if rewards else None,
        advantages=advantages,
        logged_advantage=_logged_advantage(cell) if rewards else None,
        values=lists.get("values"),
        log_probs=lists.get("log_probs", lists.get("logprobs")),
        targets=_targets(cell, config.reward_targets, read, stops) if config.reward_targets else None,
        counted=not left_out(cell),
    )


def _said_to_end(cell: Cell) -> bool:
    """Completions of one length end without a token that says so; files of ours tell it."""
    return cell.row.get("ended") is True


def _aligned_lists(cell: Cell) -> dict[str, Numbers]:
    """Lists with a number for each token, where the row has them."""
    names = [name for name in ("values", "log_probs", "logprobs") if cell.has(name)]
    if isinstance(cell.row.get("advantage"), list):
        names.append("advantage")
    return {name: cell.numbers(name, missing="log" in name) for name in names}


def _fitted(cell: Cell, name: str, numbers: Numbers, length: int, width: int) -> Numbers:
    if len(numbers) not in (length, width) or len(numbers) < length:
        must = f"the list must have a number for each of the completion's {length} tokens"
        raise InputError(must, f"found {len(numbers)}", cell.where(name))
    return numbers[:length]


def _advantage(cell: Cell) -> float:
    advantage = cell.number_at("advantage")
    if math.isnan(advantage):
        raise InputError("an advantage must be a number", "found NaN", cell.where("advantage"))
    return advantage


def _logged_advantage(cell: Cell) -> float | None:
    return cell.number_at("advantage") if isinstance(cell.row.get("advantage"), (int, float)) else None


def _reward(cell: Cell, columns: list[str]) -> float:
    """The sum of those that are there; NaN if none is."""
    parts = [each for each in map(cell.number_at, columns) if not math.isnan(each)]
    return sum(parts) if parts else math.nan


def _targets(cell: Cell, column: str, completion: Tokens, stops: Tokens) -> Tokens:
    targets = cell.targets(column)
    if len(targets) + 1 == len(completion) and completion[-1] in stops:
        targets = (*targets, completion[-1])  # the end is right where the target ends
    if len(targets) != len(completion):
        must = f"there must be a target for each of the completion's {len(completion)} tokens"
        raise InputError(must, f"found {len(targets)}", cell.where(column))
    return targets


def _key(cell: Cell, prompt: Tokens) -> Hashable:
    step = cell.row.get("step")
    if "group" not in cell.row:
        return (cell.path if step is None else step, prompt)
    if not cell.has("group"):
        raise InputError("each row must have a group", "found none", cell.where("group"))
    return (cell.path, step, cell.row["group"])
