"""What every in-context value learner of ours offers, whatever its architecture."""

from abc import abstractmethod
from types import SimpleNamespace

from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedRootModule

from valuelens.models.icrl._mrp import Context


class ValueLearner(HookedRootModule):
    """A network that reads one context and returns values of its query states.

    Hook names follow TransformerLens: `blocks.{l}.hook_resid_pre`, `blocks.{l}.attn.hook_pattern`, ... so
    `run_with_cache`, `add_hook` and `hooks` work by name.

    Attributes:
        num_layers: L.
        gamma: Discount that the model was built for.
    """

    num_layers: int
    gamma: float

    def setup(self) -> None:
        """Name the hook points; the last line of every constructor."""
        super().setup()  # type: ignore[no-untyped-call]

    @property
    def cfg(self) -> SimpleNamespace:
        """What an `ActivationCache` of TransformerLens asks of a model: how many layers, and which parts they have."""
        return SimpleNamespace(n_layers=self.num_layers, attn_only=True)

    @abstractmethod
    def prompt(
        self, context: Context, queries: Float[Tensor, "batch query feature"] | None = None
    ) -> Float[Tensor, "batch pos D"]:
        """The prompt matrix of a context, with extra query states behind S_n."""

    @abstractmethod
    def forward(
        self, prompt: Float[Tensor, "batch pos D"], num_queries: int = 1
    ) -> Float[Tensor, "batch query"]:
        """Values of the last `num_queries` columns: S_n first, then the extra queries.

        No other column attends to an extra query column, so extra queries change nothing else.
        """

    @abstractmethod
    def read_out(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos"]:
        """The value that the model would return if it stopped at this residual stream."""

    def values(
        self, context: Context, queries: Float[Tensor, "batch query feature"]
    ) -> Float[Tensor, "batch query"]:
        """Values of given states in given contexts, read through extra query columns.

        Args:
            context: What the model sees.
            queries: Features of the states whose values are wanted.
        """
        num_queries = 1 + queries.shape[1]
        values: Tensor = self(self.prompt(context, queries), num_queries)
        return values[:, 1:]
