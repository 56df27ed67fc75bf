"""What a network could compute instead of softmax TD, each rule on the same footing.

Shape legend: `batch` contexts, `pos` the n+1 columns S_0..S_n and any extra query columns behind them,
`transition` the n rewards R_1..R_n, `key` the n sources, `feature` d, `iterate` 0..num_layers.

The iterative rules start from v = 0 (weights 0) and differ only in who gets how much of whose TD error. In value
space each is v <- v + alpha C delta with its own credit kernel C [batch pos key], so one recursion, that of softmax
TD, runs them all; `softmax_td_step(values, rewards, C, ...)` takes one step of any of them from any values. All
updates are batch updates: values stay frozen while the n errors of a context are formed, which are then averaged.
"""

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor

from valuelens.probe._kernel import TD_WEIGHTS, check_columns, inner_product_scores
from valuelens.probe._td import softmax_td


def tabular_td_kernel(
    states: Int[Tensor, "batch pos"], num_transitions: int, *, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "batch pos key"]:
    """Credit of tabular TD: each column shares equally in the errors of the sources that hold its own state.

    A state that is never a source gets an equal share of *all* errors, as softmax TD does in this limit (all its
    scores tie; theory A2).

    Args:
        states: S_0..S_n, then extra queries.
        num_transitions: n.
        dtype: Of the result.

    Raises:
        ValueError: There are no transitions, or too few columns for them.
    """
    sources = _sources(states, num_transitions)
    same = rearrange(states, "b pos -> b pos 1") == rearrange(sources, "b key -> b 1 key")
    shared = (same | ~same.any(-1, keepdim=True)).to(dtype)
    return shared / shared.sum(-1, keepdim=True)


def linear_td_kernel(
    features: Float[Tensor, "batch pos feature"], num_transitions: int
) -> Float[Tensor, "batch pos key"]:
    """Credit of linear TD(0): <x(S_j), x(S_{k-1})> / n."""
    return _linear_credit(features, _sources(features, num_transitions))


def source_centred_kernel(
    features: Float[Tensor, "batch pos feature"], num_transitions: int
) -> Float[Tensor, "batch pos key"]:
    """Credit of softmax TD with small features: (1 + <x(S_j), x(S_{k-1}) - xbar>) / n, xbar the mean source.

    Source: first order of the softmax of inner products in the scores (theory A2).
    """
    sources = _sources(features, num_transitions)
    return 1 / num_transitions + _linear_credit(features, sources - sources.mean(1, keepdim=True))


def td_lambda_kernel(
    features: Float[Tensor, "batch pos feature"], num_transitions: int, *, decay: float
) -> Float[Tensor, "batch pos key"]:
    """Credit of linear TD(lambda): <x(S_j), e_k> / n with traces e_k = decay e_{k-1} + x(S_{k-1}), e_0 = 0.

    Args:
        features: x(S_0)..x(S_n), then extra queries.
        num_transitions: n.
        decay: gamma lambda.
    """
    sources = _sources(features, num_transitions)
    traces = einsum(
        _decays(decay, num_transitions, features), sources, "k past, b past feature -> b k feature"
    )
    return _linear_credit(features, traces)


def residual_gradient_kernel(
    features: Float[Tensor, "batch pos feature"], num_transitions: int, *, gamma: float
) -> Float[Tensor, "batch pos key"]:
    """Credit of the residual gradient: <x(S_j), x(S_{k-1}) - gamma x(S_k)> / n."""
    sources, successors = _sources(features, num_transitions), features[:, 1 : num_transitions + 1]
    return _linear_credit(features, sources - gamma * successors)


def non_parametric_td_kernel(similarity: Float[Tensor, "batch pos key"]) -> Float[Tensor, "batch pos key"]:
    """Nadaraya-Watson weights kappa(S_j, S_{k-1}) / sum_k kappa; equal to a softmax of g = log kappa.

    Source: Nadaraya (1964), Watson (1964).

    Raises:
        ValueError: A similarity is negative, or a column is similar to no source.
    """
    total = similarity.sum(-1, keepdim=True)
    if bool((similarity < 0).any()) or not bool((total > 0).all()):
        found = f"smallest {similarity.min().item():.4g}, smallest row sum {total.min().item():.4g}"
        raise ValueError(
            f"similarities must be >= 0 with positive row sums; found {found}; non_parametric_td"
        )
    return similarity / total


def tabular_td(
    states: Int[Tensor, "batch pos"],
    rewards: Float[Tensor, "batch transition"],
    *,
    gamma: float,
    alpha: float,
    num_layers: int,
) -> Float[Tensor, "iterate batch pos"]:
    """Tabular batch TD(0): v(s) <- v(s) + alpha times the mean error over the visits of s as a source.

    Source: Sutton and Barto (2018), eq. 6.2 and section 6.3 (batch updating), with the mean in place of the sum;
    for states that are never a source see `tabular_td_kernel`.

    Args:
        states: S_0..S_n, then extra queries.
        rewards: R_1..R_n.
        gamma: Discount.
        alpha: Step size.
        num_layers: Steps.

    Raises:
        ValueError: There are no transitions or too few columns for them.
    """
    kernel = tabular_td_kernel(states, rewards.shape[-1], dtype=rewards.dtype)
    return _iterates(kernel, rewards, gamma=gamma, alpha=alpha, num_layers=num_layers)


def linear_td(
    features: Float[Tensor, "batch pos feature"],
    rewards: Float[Tensor, "batch transition"],
    *,
    gamma: float,
    alpha: float,
    num_layers: int,
) -> Float[Tensor, "iterate batch pos"]:
    """Linear batch TD(0): weights <- weights + (alpha / n) sum_k delta_k x(S_{k-1}); values are x' weights.

    Source: Sutton and Barto (2018), section 9.4; what linear attention implements in arXiv 2405.13861.

    Args:
        features: x(S_0)..x(S_n), then extra queries.
        rewards: R_1..R_n.
        gamma: Discount.
        alpha: Step size.
        num_layers: Steps.
    """
    kernel = linear_td_kernel(features, rewards.shape[-1])
    return _iterates(kernel, rewards, gamma=gamma, alpha=alpha, num_layers=num_layers)


def source_centred_linear_td(
    features: Float[Tensor, "batch pos feature"],
    rewards: Float[Tensor, "batch transition"],
    *,
    gamma: float,
    alpha: float,
    num_layers: int,
) -> Float[Tensor, "iterate batch pos"]:
    """Linear batch TD(0) with centred sources and a shift that all columns share.

    v(S_j) <- v(S_j) + alpha (mean_k delta_k + x(S_j)' mean_k delta_k (x(S_{k-1}) - xbar)): softmax TD in the limit
    of features of small norm.

    Source: derived (theory A2).

    Args:
        features: x(S_0)..x(S_n), then extra queries.
        rewards: R_1..R_n.
        gamma: Discount.
        alpha: Step size.
        num_layers: Steps.
    """
    kernel = source_centred_kernel(features, rewards.shape[-1])
    return _iterates(kernel, rewards, gamma=gamma, alpha=alpha, num_layers=num_layers)


def td_lambda(
    features: Float[Tensor, "batch pos feature"],
    rewards: Float[Tensor, "batch transition"],
    *,
    gamma: float,
    alpha: float,
    num_layers: int,
    lambda_: float,
) -> Float[Tensor, "iterate batch pos"]:
    """Linear batch TD(lambda) with accumulating traces; at lambda 0 it is `linear_td`.

    Source: Sutton and Barto (2018), eqs. 12.5-12.7, with updates collected over the context and averaged.

    Args:
        features: x(S_0)..x(S_n), then extra queries.
        rewards: R_1..R_n.
        gamma: Discount.
        alpha: Step size.
        num_layers: Sweeps over the context; traces start each one at 0.
        lambda_: Trace decay in [0, 1].
    """
    kernel = td_lambda_kernel(features, rewards.shape[-1], decay=gamma * lambda_)
    return _iterates(kernel, rewards, gamma=gamma, alpha=alpha, num_layers=num_layers)


def residual_gradient(
    features: Float[Tensor, "batch pos feature"],
    rewards: Float[Tensor, "batch transition"],
    *,
    gamma: float,
    alpha: float,
    num_layers: int,
) -> Float[Tensor, "iterate batch pos"]:
    """Gradient descent on half the mean squared TD error of linear values (one sample of the successor).

    weights <- weights + (alpha / n) sum_k delta_k (x(S_{k-1}) - gamma x(S_k)); at gamma 0 it is `linear_td`.

    Source: Baird, Residual Algorithms (1995); Sutton and Barto (2018), section 11.5.

    Args:
        features: x(S_0)..x(S_n), then extra queries.
        rewards: R_1..R_n.
        gamma: Discount.
        alpha: Step size.
        num_layers: Steps.
    """
    kernel = residual_gradient_kernel(features, rewards.shape[-1], gamma=gamma)
    return _iterates(kernel, rewards, gamma=gamma, alpha=alpha, num_layers=num_layers)


def non_parametric_td(
    similarity: Float[Tensor, "batch pos key"],
    rewards: Float[Tensor, "batch transition"],
    *,
    gamma: float,
    alpha: float,
    num_layers: int,
) -> Float[Tensor, "iterate batch pos"]:
    """Kernel-smoothed TD: v(S_j) <- v(S_j) + alpha sum_k kappa(S_j, S_{k-1}) delta_k / sum_k kappa(S_j, S_{k-1}).

    Softmax TD with g = log kappa is this rule exactly.

    Source: arXiv 2605.07333 (theory A2); weights of Nadaraya (1964) and Watson (1964).

    Args:
        similarity: kappa >= 0 between each column and each of the n sources.
        rewards: R_1..R_n.
        gamma: Discount.
        alpha: Step size.
        num_layers: Steps.

    Raises:
        ValueError: A similarity is negative, or a column is similar to no source.
    """
    kernel = non_parametric_td_kernel(similarity[..., : rewards.shape[-1]])
    return _iterates(kernel, rewards, gamma=gamma, alpha=alpha, num_layers=num_layers)


def lstd(
    features: Float[Tensor, "batch pos feature"],
    rewards: Float[Tensor, "batch transition"],
    *,
    gamma: float,
    ridge: float,
) -> Float[Tensor, "batch pos"]:
    """Least-squares TD: values of the weights where the update of `linear_td` vanishes (at ridge 0).

    weights = (mean_k x(S_{k-1}) (x(S_{k-1}) - gamma x(S_k))' + ridge I)^{-1} mean_k x(S_{k-1}) R_k.

    Source: Bradtke and Barto (1996); Sutton and Barto (2018), eqs. 9.20-9.21 (their epsilon is n ridge).

    Args:
        features: x(S_0)..x(S_n), then extra queries.
        rewards: R_1..R_n.
        gamma: Discount.
        ridge: Added to the diagonal; needed where a context shows fewer states than there are features.

    Raises:
        torch.linalg.LinAlgError: The matrix is singular (ridge too small).
    """
    n = rewards.shape[-1]
    regressors = _sources(features, n) - gamma * features[:, 1 : n + 1]
    return _solved(features, regressors, rewards, ridge)


def monte_carlo_returns(
    rewards: Float[Tensor, "batch transition"], *, gamma: float
) -> Float[Tensor, "batch transition"]:
    """Discounted sum of rewards from each source to the end of the context: sum_{i >= k} gamma^{i-k} R_i.

    Truncated, not bootstrapped: the last ones miss nearly all of their tail, up to gamma^{n-k+1} max |v|.

    Source: Sutton and Barto (2018), section 5.1 (every visit), on a context that ends before the episode does.

    Example:
        >>> monte_carlo_returns(torch.tensor([[1.0, 2.0, 4.0]]), gamma=0.5)
        tensor([[3., 4., 4.]])
    """
    decays = _decays(gamma, rewards.shape[-1], rewards)
    return einsum(decays, rewards, "future k, b future -> b k")


def monte_carlo(
    features: Float[Tensor, "batch pos feature"],
    rewards: Float[Tensor, "batch transition"],
    *,
    gamma: float,
    ridge: float,
) -> Float[Tensor, "batch pos"]:
    """Values by ridge regression of `monte_carlo_returns` on the features of the sources, without intercept.

    At gamma 0 it equals `lstd`. For the kernel-smoothed form: `kernel_regression(monte_carlo_returns(...), kernel)`.

    Source: Sutton and Barto (2018), section 9.3 (gradient Monte Carlo), at its least-squares limit.

    Args:
        features: x(S_0)..x(S_n), then extra queries.
        rewards: R_1..R_n.
        gamma: Discount.
        ridge: Added to the diagonal of the mean outer product of the sources.

    Raises:
        torch.linalg.LinAlgError: The matrix is singular (ridge too small).
    """
    sources = _sources(features, rewards.shape[-1])
    return _solved(features, sources, monte_carlo_returns(rewards, gamma=gamma), ridge)


def kernel_regression(
    targets: Float[Tensor, "batch transition"], kernel: Float[Tensor, "batch pos key"]
) -> Float[Tensor, "batch pos"]:
    """Attention-weighted mean of targets, v(S_j) = sum_k K(S_j <- S_{k-1}) target_k: smoothing, no bootstrapping.

    With rewards as targets it is the first layer of softmax TD from v = 0.

    Source: Nadaraya (1964), Watson (1964).

    Args:
        targets: R_1..R_n, or `monte_carlo_returns`.
        kernel: Weight of each source (from the first n columns; later keys are ignored) for each column.
    """
    n = targets.shape[-1]
    check_columns(n, queries=kernel.shape[1], keys=kernel.shape[2], where="kernel_regression")
    return einsum(kernel[..., :n], targets, "batch pos key, batch key -> batch pos")


def _iterates(kernel: Tensor, rewards: Tensor, *, gamma: float, alpha: float, num_layers: int) -> Tensor:
    start = rewards.new_zeros(kernel.shape[:2])
    return softmax_td(start, rewards, kernel, gamma=gamma, num_layers=num_layers, w=alpha * TD_WEIGHTS)


def _sources(columns: Tensor, num_transitions: int) -> Tensor:
    check_columns(
        num_transitions, queries=columns.shape[1], keys=num_transitions, where="rival of softmax TD"
    )
    return columns[:, :num_transitions]


def _linear_credit(features: Tensor, directions: Tensor) -> Tensor:
    # The update (1/n) sum_k delta_k direction_k of the weights, seen in the values of each column.
    return inner_product_scores(features, directions) / directions.shape[1]


def _decays(decay: float, n: int, like: Tensor) -> Tensor:
    # [later earlier]: decay ** (later - earlier), 0 above the diagonal.
    steps = torch.arange(n, dtype=like.dtype, device=like.device)
    return torch.pow(decay, (steps[:, None] - steps).clamp(min=0)).tril()


def _solved(features: Tensor, regressors: Tensor, targets: Tensor, ridge: float) -> Tensor:
    sources = features[:, : targets.shape[1]]
    outer = einsum(sources, regressors, "b k row, b k column -> b row column") / targets.shape[1]
    moment = einsum(sources, targets, "b k feature, b k -> b feature") / targets.shape[1]
    eye = torch.eye(outer.shape[-1], dtype=outer.dtype, device=outer.device)
    weights: Tensor = torch.linalg.solve(outer + ridge * eye, moment)
    return einsum(features, weights, "b pos feature, b feature -> b pos")
