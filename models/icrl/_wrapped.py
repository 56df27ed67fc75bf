"""Algorithms wrapped in a module with the slots of softmax TD: networks whose algorithm is known.

The layer rules are written here a second time, as plainly as possible and without the kernels of `valuelens.probe`:
what identifies a network is then tested against something that it did not write.

Shape legend: `batch` contexts, `pos` n+1 columns of the prompt, then extra query columns, `n` transitions, `d`
features, `D` = d+3 slots of a column (features, reward, target, current memory).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from valuelens.models.icrl._learner import ValueLearner
from valuelens.models.icrl._mrp import Context
from valuelens.models.icrl._prompt import softmax_prompt

_SAME = 1e-6


class LayerRule(nn.Module):
    """One step of an algorithm on the values of a prompt's columns.

    Args:
        gamma: Discount, of returns and of errors.
        **numbers: Parameters of the rule, floats or tensors, kept as buffers.
    """

    def __init__(self, *, gamma: float, **numbers: float | Tensor) -> None:
        super().__init__()
        self.gamma = gamma
        for name, number in numbers.items():
            self.register_buffer(name, torch.as_tensor(number, dtype=torch.float64))

    def forward(
        self, x: Float[Tensor, "batch pos d"], R: Float[Tensor, "batch n"], v: Float[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos"]:
        """The update of every column.

        Args:
            x: Features of the columns.
            R: Rewards of the n transitions.
            v: Values of the columns before the layer.
        """
        raise NotImplementedError

    def errors(self, R: Tensor, v: Tensor) -> Float[Tensor, "batch n"]:
        """TD errors of the transitions."""
        n = R.shape[1]
        return R + self.gamma * v[:, 1 : n + 1] - v[:, :n]

    def returns(self, R: Tensor) -> Float[Tensor, "batch n"]:
        """Discounted rewards from each source to the end of the context, by a loop."""
        total, found = torch.zeros_like(R[:, 0]), []
        for k in reversed(range(R.shape[1])):
            total = R[:, k] + self.gamma * total
            found.append(total)
        return torch.stack(found[::-1], dim=1)

    def smooth(self, x: Tensor, n: int) -> Float[Tensor, "batch pos n"]:
        """Softmax over the sources of x_src' A x_dest, with the rule's A."""
        scores = torch.einsum("bjd,ed,bke->bjk", x, self.get_buffer("A"), x[:, :n])
        pattern: Tensor = scores.softmax(-1)
        return pattern


class SoftmaxTDRule(LayerRule):
    """K_A (w_R R + gamma w_T v(S_k) + w_C v(S_{k-1})); parameters A [d d] and w [3]."""

    def forward(self, x: Tensor, R: Tensor, v: Tensor) -> Tensor:
        """The update of every column."""
        n, w = R.shape[1], self.get_buffer("w")
        error = w[0] * R + self.gamma * w[1] * v[:, 1 : n + 1] + w[2] * v[:, :n]
        return (self.smooth(x, n) @ error[..., None])[..., 0]


class LinearTDRule(LayerRule):
    """A step of size alpha of the weights along mean_k delta_k x(S_{k-1})."""

    def forward(self, x: Tensor, R: Tensor, v: Tensor) -> Tensor:
        """The update of every column."""
        step = torch.einsum("bk,bkd->bd", self.errors(R, v), x[:, : R.shape[1]]) / R.shape[1]
        return self.get_buffer("alpha") * torch.einsum("bjd,bd->bj", x, step)


class TabularTDRule(LayerRule):
    """alpha times the mean error over the visits of a column's own state; over all, if it never was a source."""

    def forward(self, x: Tensor, R: Tensor, v: Tensor) -> Tensor:
        """The update of every column."""
        same = (torch.cdist(x, x[:, : R.shape[1]]) < _SAME).to(x.dtype)
        same = torch.where(same.sum(-1, keepdim=True) > 0, same, torch.ones_like(same))
        mean = (same * self.errors(R, v)[:, None]).sum(-1) / same.sum(-1)
        return self.get_buffer("alpha") * mean


class TDLambdaRule(LayerRule):
    """Linear TD with accumulating traces, one sweep a layer; parameters alpha, lam."""

    def forward(self, x: Tensor, R: Tensor, v: Tensor) -> Tensor:
        """The update of every column."""
        error, trace = self.errors(R, v), torch.zeros_like(x[:, 0])
        step = torch.zeros_like(trace)
        for k in range(R.shape[1]):
            trace = self.gamma * self.get_buffer("lam") * trace + x[:, k]
            step = step + error[:, k, None] * trace / R.shape[1]
        return self.get_buffer("alpha") * torch.einsum("bjd,bd->bj", x, step)


class ResidualGradientRule(LayerRule):
    """A step of size alpha of the weights along mean_k delta_k (x(S_{k-1}) - gamma x(S_k))."""

    def forward(self, x: Tensor, R: Tensor, v: Tensor) -> Tensor:
        """The update of every column."""
        n = R.shape[1]
        step = (self.errors(R, v)[..., None] * (x[:, :n] - self.gamma * x[:, 1 : n + 1])).mean(1)
        return self.get_buffer("alpha") * torch.einsum("bjd,bd->bj", x, step)


class MonteCarloRule(LayerRule):
    """A step of size alpha of the weights along mean_k (G_k - v(S_{k-1})) x(S_{k-1}), G the return of the context."""

    def forward(self, x: Tensor, R: Tensor, v: Tensor) -> Tensor:
        """The update of every column."""
        n = R.shape[1]
        step = ((self.returns(R) - v[:, :n])[..., None] * x[:, :n]).mean(1)
        return self.get_buffer("alpha") * torch.einsum("bjd,bd->bj", x, step)


class SolvedRule(LayerRule):
    """alpha of the way to a ridge solution: of LSTD, or (`bootstrap` 0) of regression on returns; alpha, ridge."""

    def forward(self, x: Tensor, R: Tensor, v: Tensor) -> Tensor:
        """The update of every column."""
        n, sources, ahead = R.shape[1], x[:, : R.shape[1]], x[:, 1 : R.shape[1] + 1]
        bootstrap = self.get_buffer("bootstrap")
        right = R if bool(bootstrap) else self.returns(R)
        left = sources.mT @ (sources - bootstrap * self.gamma * ahead) / n
        left = left + self.get_buffer("ridge") * torch.eye(x.shape[-1], dtype=x.dtype)
        weights = torch.linalg.inv(left) @ (sources.mT @ right[..., None]) / n
        move: Tensor = self.get_buffer("alpha") * ((x @ weights)[..., 0] - v)
        return move


class SmoothingRule(LayerRule):
    """alpha of the way to the attention-weighted mean of the rewards, or (`returns_too` 1) of the returns; alpha, A."""

    def forward(self, x: Tensor, R: Tensor, v: Tensor) -> Tensor:
        """The update of every column."""
        targets = self.returns(R) if bool(self.get_buffer("returns_too")) else R
        return self.get_buffer("alpha") * ((self.smooth(x, R.shape[1]) @ targets[..., None])[..., 0] - v)


class RewardAveragingRule(LayerRule):
    """alpha of the way to mean(R) / (1 - gamma), which sees no state."""

    def forward(self, x: Tensor, R: Tensor, v: Tensor) -> Tensor:
        """The update of every column."""
        return self.get_buffer("alpha") * (R.mean(1, keepdim=True) / (1 - self.gamma) - v)


class IdentityRule(LayerRule):
    """No update."""

    def forward(self, x: Tensor, R: Tensor, v: Tensor) -> Tensor:
        """The update of every column."""
        return torch.zeros_like(v)


class _Block(nn.Module):
    def __init__(self, rule: LayerRule) -> None:
        super().__init__()
        self.rule = rule
        self.hook_value, self.hook_target, self.hook_resid_post = HookPoint(), HookPoint(), HookPoint()

    def forward(self, resid: Tensor, num_queries: int, noise: Tensor, basis: tuple[Tensor, Tensor]) -> Tensor:
        slots = resid @ basis[1]
        n = slots.shape[1] - num_queries
        x, R, v = slots[..., :-3], slots[:, :n, -3], slots[..., -1]
        update = self.rule(x, R, v)
        v = self.hook_value(v + update + update.square().mean().sqrt() * torch.tanh(x @ noise))
        target = torch.zeros_like(v)
        target[:, :n] = self.rule.gamma * v[:, 1 : n + 1]
        slots = torch.cat([slots[..., :-2], self.hook_target(target)[..., None], v[..., None]], dim=-1)
        out: Tensor = self.hook_resid_post(slots @ basis[0])
        return out


class WrappedRules(ValueLearner):
    """A network that runs given rules, one a layer, on a residual stream with the slots of softmax TD.

    In a hidden basis the stream is z T with an invertible T that only the network knows: every block undoes it, steps,
    and redoes it, and the read-out undoes it. `hook_resid_post` shows z T; `hook_value` and `hook_target` show plain
    slots.

    Args:
        rules: One for each layer.
        feature_dim: d.
        basis: T; the identity if none.
        noise: For each layer the direction of a perturbation of its update, tanh(x'noise) times its root mean square
            (the weight noise of a network without weights); none if absent.
    """

    def __init__(
        self,
        rules: Sequence[LayerRule],
        *,
        feature_dim: int,
        basis: Float[Tensor, "D D"] | None = None,
        noise: Float[Tensor, "layer d"] | None = None,
    ) -> None:
        super().__init__()
        self.num_layers, self.feature_dim, self.gamma = len(rules), feature_dim, rules[0].gamma
        eye = torch.eye(feature_dim + 3, dtype=torch.float64)
        self.register_buffer("basis", eye if basis is None else basis)
        self.register_buffer("inverse", torch.linalg.inv(self.get_buffer("basis")))
        quiet = torch.zeros(len(rules), feature_dim, dtype=torch.float64)
        self.register_buffer("noise", quiet if noise is None else noise)
        self.blocks = nn.ModuleList(_Block(rule) for rule in rules)
        self.setup()

    def prompt(
        self, context: Context, queries: Float[Tensor, "batch query feature"] | None = None
    ) -> Float[Tensor, "batch pos D"]:
        """Z_0 in the hidden basis."""
        return softmax_prompt(context, queries) @ self.get_buffer("basis")

    def forward(
        self, prompt: Float[Tensor, "batch pos D"], num_queries: int = 1
    ) -> Float[Tensor, "batch query"]:
        """Values of the last `num_queries` columns."""
        resid, basis = prompt, self.get_buffer("basis")
        for block, noise in zip(self.blocks, self.get_buffer("noise"), strict=True):
            resid = block(resid, num_queries, noise, (basis, self.get_buffer("inverse")))
        return self.read_out(resid)[:, -num_queries:]

    def read_out(self, resid: Float[Tensor, "batch pos D"]) -> Float[Tensor, "batch pos"]:
        """Current memory, out of the hidden basis."""
        return resid @ self.get_buffer("inverse")[:, -1]
