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
