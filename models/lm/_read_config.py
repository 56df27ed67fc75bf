"""What a file of rollouts does not say by itself."""

from dataclasses import dataclass

from valuelens.models.lm._generate_config import CompletionEnds
from valuelens.models.lm._rollouts import Tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadConfig:
    """What a file of rollouts does not say by itself.

    Attributes:
        vocabulary: Tokens of the model.
        context_window: Tokens that prompt and completion may have together; no limit if none.
        rewards: Columns whose sum is the reward; if none, `reward` and every column of floats without another meaning.
        reward_targets: Column of the right tokens, ids or text, aligned with the completion.
        completion_ends: Whether completions given as text ended by themselves, so that an end-of-sequence token, which
            text does not show, belongs to them: `yes`, `no`, or `auto`.
        max_completion_length: Tokens at which completions were cut; that of each file's longest text if none.
        stops: Tokens that end a completion; those of the tokenizer if none.
    """

    vocabulary: int
    context_window: int | None = None
    rewards: tuple[str, ...] | None = None
    reward_targets: str | None = None
    completion_ends: CompletionEnds = "auto"
    max_completion_length: int | None = None
    stops: Tokens | None = None
