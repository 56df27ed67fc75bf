"""Whether gradients and padding of a language model are what every measurement takes for granted.

Shape legend: `pos` positions of one sequence.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from valuelens.models.lm._language_model import LanguageModel

_LENGTH, _PADDING = 12, 5
_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3, torch.bfloat16: 0.5}
"""Of log-probabilities; norms of transformers run in float32 even in float64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Soundness:
    """What a forward and a backward pass of a random sequence showed.

    Attributes:
        gradients: For each block, norm of the derivative of the sequence's log-probability by what enters it.
        padding: Largest change of a log-probability when padding is put to the right.
        future: Largest change of a log-probability when a later token changes: 0 if attention is causal.
        tolerance: What such a change may be in the model's precision.
    """

    gradients: tuple[float, ...]
    padding: float
    future: float
    tolerance: float


def soundness(language_model: LanguageModel) -> Soundness:
    """Try a language model on one random sequence.

    Args:
        language_model: Of any family.
    """
    length = min(_LENGTH, (language_model.context_window or _LENGTH + _PADDING) - _PADDING)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(language_model.vocab_size, (length,), generator=generator)
    ids, other = ids.to(language_model.device), ids.clone().to(language_model.device)
    other[-1] = (other[-1] + 1) % language_model.vocab_size
    with torch.no_grad():
        alone, changed = _log_probs(language_model, ids), _log_probs(language_model, other)
        padded = _log_probs(language_model, ids, padding=_PADDING)
    return Soundness(
        gradients=_gradients(language_model, ids),
        padding=float((padded - alone).abs().max()),
        future=float((changed - alone)[:-1].abs().max()),
        tolerance=_TOLERANCE[language_model.model.dtype],
    )


def _log_probs(
    language_model: LanguageModel, ids: Int[Tensor, " pos"], padding: int = 0
) -> Float[Tensor, "pos vocabulary"]:
    row = torch.cat([ids, ids.new_zeros(padding)])[None]
    mask = (torch.arange(row.shape[1], device=row.device) < len(ids)).long()[None]
    logits: Tensor = language_model.model(input_ids=row, attention_mask=mask).logits
    return logits[0, : len(ids)].double().log_softmax(-1)


def _gradients(language_model: LanguageModel, ids: Int[Tensor, " pos"]) -> tuple[float, ...]:
    model = language_model.model
    leaf = model.get_input_embeddings()(ids[None]).detach().requires_grad_()
    out = model(inputs_embeds=leaf, attention_mask=torch.ones_like(ids)[None], output_hidden_states=True)
    chosen = out.logits[0, :-1].double().log_softmax(-1).gather(-1, ids[1:, None]).sum()
    entering = out.hidden_states[: language_model.num_layers]
    if not chosen.requires_grad:  # with frozen parameters one detached block cuts off everything
        return (0.0,) * len(entering)
    found = torch.autograd.grad(chosen, entering, allow_unused=True)
    return tuple(0.0 if each is None else float(each.double().norm()) for each in found)
