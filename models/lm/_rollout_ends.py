"""Where a completion that was read ends: its end-of-sequence token, which text does not show, and its padding."""

from collections.abc import Set

from valuelens.models._errors import InputError
from valuelens.models.lm._read_config import ReadConfig
from valuelens.models.lm._rollout_cells import Cell
from valuelens.models.lm._rollouts import Tokens


def whole_completion(
    cell: Cell, tokens: Tokens, lengths: Set[int], longest: int, config: ReadConfig
) -> Tokens:
    """The completion with its end-of-sequence token, where one belongs to it, and without padding.

    Args:
        cell: The row.
        tokens: As read from it.
        lengths: Of lists that hold a number for each token, if the row has some.
        longest: Tokens at which completions given as text were cut.
        config: Whether completions ended, and with which tokens.

    Raises:
        InputError: Its mask is none of a completion, something follows its end, or there is no end to append.
    """
    counted, stops = _counted(cell), config.stops or ()
    if cell.has("completion_ids"):
        tokens = _unpadded(cell, tokens, counted, config)
        missing = config.completion_ends == "yes" and not (tokens and tokens[-1] in stops)
    else:
        lengths = lengths | {counted} if counted else lengths
        missing = _has_ended(tokens, lengths, longest, config)
    whole = (*tokens, *_end(cell, stops)) if missing else tokens
    if counted and counted != len(whole):
        must = f"a mask must have a one for each of the completion's {len(whole)} tokens"
        raise InputError(must, f"found {counted}", cell.where("completion_mask"))
    return whole


def left_out(cell: Cell) -> bool:
    """Whether the loss leaves the whole completion out, as TRL does with those cut: a mask of zeros.

    Args:
        cell: The row.
    """
    return _counted(cell) == 0


def _counted(cell: Cell) -> int | None:
    """Ones of the completion's mask, if it has one."""
    if not cell.has("completion_mask"):
        return None
    mask = cell.numbers("completion_mask")
    counted = mask.count(1.0)
    if mask != (1.0,) * counted + (0.0,) * (len(mask) - counted):
        must = "a mask must be ones, then zeros (tool masks are not supported)"
        raise InputError(must, f"found {[int(each) for each in mask]}", cell.where("completion_mask"))
    return counted


def _unpadded(cell: Cell, tokens: Tokens, counted: int | None, config: ReadConfig) -> Tokens:
    """Token ids without what stands behind the completion."""
    if counted:
        return tokens[:counted]
    if cell.row.get("ended") is not None:
        return tokens  # their length is told: an end in between was sampled where completions do not end
    stops = config.stops or ()
    end = next((k for k, token in enumerate(tokens) if token in stops), None)
    if end is None or config.completion_ends == "no":
        return tokens
    padding = {*stops, getattr(cell.tokenizer, "pad_token_id", None)}
    if not set(tokens[end + 1 :]) <= padding:
        must = "nothing may follow the end of a completion, unless --completion-ends no"
        raise InputError(must, f"found tokens behind {tokens[end]}", cell.where("completion_ids"))
    return tokens[: end + 1]


def _has_ended(tokens: Tokens, lengths: Set[int], longest: int, config: ReadConfig) -> bool:
    """Whether an end-of-sequence token belongs behind a text."""
    if config.completion_ends != "auto":
        return config.completion_ends == "yes"
    if not config.stops or (tokens and tokens[-1] in config.stops):
        return False
    return len(tokens) + 1 in lengths if lengths else len(tokens) < longest


def _end(cell: Cell, stops: Tokens) -> Tokens:
    if not stops:
        must = "completions that ended must have an end-of-sequence token"
        raise InputError(must, "found none in the tokenizer", f"{cell.path}, row {cell.number}")
    return stops[:1]
