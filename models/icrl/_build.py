"""From a configuration to a model."""

import torch

from valuelens.models.icrl._config import ModelConfig, TaskConfig
from valuelens.models.icrl._learner import ValueLearner
from valuelens.models.icrl._linear_attention import LinearAttention
from valuelens.models.icrl._softmax_td import SoftmaxTD
from valuelens.models.icrl._transformer import Transformer


def build(model: ModelConfig, task: TaskConfig, generator: torch.Generator) -> ValueLearner:
    """An untrained model for a task.

    Args:
        model: Architecture and sizes.
        task: Decides d, gamma and the longest context.
        generator: Draws the initial parameters.
    """
    if model.arch == "transformer":
        return Transformer(
            model,
            feature_dim=task.feature_dim,
            context_length=task.context_length,
            gamma=task.gamma,
            generator=generator,
        )
    family = LinearAttention if model.arch == "linear" else SoftmaxTD
    return family(model, feature_dim=task.feature_dim, gamma=task.gamma, generator=generator)


def deeper(model: SoftmaxTD | LinearAttention, num_layers: int) -> SoftmaxTD | LinearAttention:
    """A copy of a tied model that repeats its one layer another number of times.

    Args:
        model: With tied layers, or one.
        num_layers: L of the copy.

    Raises:
        ValueError: The layers are not tied, so there is none to repeat.

    Example:
        >>> from valuelens.models.icrl import theta_star
        >>> deeper(theta_star(feature_dim=2, num_layers=3, gamma=0.5), 60).A.shape
        torch.Size([60, 5, 5])
    """
    if not model.tied and model.num_layers > 1:
        raise ValueError("only tied layers can be repeated; found untied layers; deeper")
    arch = model.arch if isinstance(model, SoftmaxTD) else "linear"
    config = ModelConfig(arch=arch, weights=model.weights, num_layers=num_layers, tied=True)
    generator = torch.Generator()
    copy = type(model)(config, feature_dim=model.feature_dim, gamma=model.gamma, generator=generator)
    copy = copy.to(next(model.parameters()).dtype)
    copy.load_state_dict(model.state_dict())
    return copy.eval()
