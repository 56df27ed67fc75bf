"""valuelens: mechanistic interpretability for transformers trained with reinforcement learning."""

from importlib.metadata import version

__version__ = version("valuelens")
