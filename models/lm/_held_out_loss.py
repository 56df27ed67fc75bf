"""How well a language model predicts texts that it was not trained on: the oldest predictor of all."""

from collections.abc import Sequence

import torch

from valuelens.models._errors import InputError
from valuelens.models.lm._language_model import LanguageModel
from valuelens.models.lm._tokenisation import needed, prompt_tokens


@torch.no_grad()
def held_out_loss(
    language_model: LanguageModel, texts: Sequence[str], *, ends: bool = False, batch_size: int = 64
) -> float:
    """Mean of -log p of each token but the first of its text, in nats, over all tokens of all texts.

    Args:
        language_model: With its tokenizer, which adds the special tokens that it always adds.
        texts: Not of its training.
        ends: An end-of-sequence token stands behind each text and is predicted too.
        batch_size: Texts a pass.

    Raises:
        InputError: There is no tokenizer or no such token, no text has two tokens, one is too long, or the loss is not
            a number.
    """
    where = f"held-out texts of {language_model.name}"
    tokenizer = needed(language_model.tokenizer, where)
    if ends and tokenizer.eos_token_id is None:
        raise InputError(
            "texts that end must have an end-of-sequence token", "found none in the tokenizer", where
        )
    end = (tokenizer.eos_token_id,) if ends else ()
    rows = [(*prompt_tokens(tokenizer, text, f"{where}, text {i}"), *end) for i, text in enumerate(texts)]
    count, longest = sum(len(row) - 1 for row in rows), max(map(len, rows), default=0)
    if count < 1:
        raise InputError("some held-out text must have two tokens", f"found none in {len(rows)} texts", where)
    if language_model.context_window is not None and longest > language_model.context_window:
        must = f"a held-out text must fit the context window of {language_model.context_window} tokens"
        raise InputError(must, f"found {longest}", where)
    total = sum(
        _total(language_model, rows[start : start + batch_size]) for start in range(0, len(rows), batch_size)
    )
    if not abs(total) < float("inf"):  # nor NaN
        raise InputError("the held-out loss must be a number", f"found {total / count}", where)
    return total / count


def _total(language_model: LanguageModel, rows: Sequence[tuple[int, ...]]) -> float:
    """Of some texts; padding is on the right, where no token sees it."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=language_model.device)
    length = torch.tensor([len(row) for row in rows], device=language_model.device)
    there = torch.arange(width, device=language_model.device) < length[:, None]
    logits = language_model.model(
        input_ids=ids,
        attention_mask=there.long(),
        position_ids=torch.arange(width, device=ids.device)[None],
        use_cache=False,
    ).logits[:, :-1]
    log_prob = logits.double().log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return -float(torch.where(there[:, 1:], log_prob, 0.0).sum())
