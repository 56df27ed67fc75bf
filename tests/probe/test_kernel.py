import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from valuelens.probe import _kernel as k

SIZES = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 4),
        "n": st.integers(1, 12),
        "extra": st.integers(0, 3),
        "num_states": st.integers(1, 6),
        "seed": st.integers(0, 10_000),
    }
)
laws = settings(max_examples=30, deadline=None)


def case(batch, n, extra, num_states, seed):
    """Contexts with features of dimension 3, a matrix A, and the scores between states and between columns."""
    g = torch.Generator().manual_seed(seed)
    table = torch.randn(batch, num_states, 3, generator=g, dtype=torch.float64)
    A = torch.randn(3, 3, generator=g, dtype=torch.float64)
    states = torch.randint(num_states, (batch, n + 1 + extra), generator=g)
    features = table[torch.arange(batch)[:, None], states]
    return SimpleNamespace(
        n=n,
        num_states=num_states,
        states=states,
        features=features,
        rewards=torch.randn(batch, n, generator=g, dtype=torch.float64),
        kernel=k.softmax_kernel(k.bilinear_scores(features, features[:, :n], A)),
        scores=k.bilinear_scores(table, table, A),
        w=torch.randn(3, generator=g, dtype=torch.float64),
        gamma=torch.rand((), generator=g).item(),
    )


def loop_scores(score, dest, src):
    rows = [[[score(x, y) for y in src[b]] for x in dest[b]] for b in range(len(dest))]
    return torch.tensor(rows, dtype=torch.float64)


def loop_state_kernel(c, b):
    """M_hat, P_hat, r_hat of context b by the sums of theory A4, averaged over the columns of a state."""
    M, P, r = (
        torch.zeros(c.num_states, c.num_states),
        torch.zeros(c.num_states, c.num_states),
        [0.0] * c.num_states,
    )
    M, P, r = M.double(), P.double(), torch.zeros(c.num_states).double()
    for s in range(c.num_states):
        columns = [j for j, state in enumerate(c.states[b].tolist()) if state == s]
        for j in columns:
            for i in range(c.n):
                share = c.kernel[b, j, i] / len(columns)
                M[s, c.states[b, i]] += share
                P[s, c.states[b, i + 1]] += share
                r[s] += share * c.rewards[b, i]
    return M, P, r


def restricted(c, summary, b, w):
    """The iteration matrix of context b with unvisited rows and columns cut out."""
    kept = sorted(set(c.states[b, : c.n].tolist()))
    full = torch.eye(c.num_states).double() + w[2] * summary.M_hat[b] + c.gamma * w[1] * summary.P_hat[b]
    return full[kept][:, kept].numpy()


@settings(max_examples=8, deadline=None)
@given(SIZES)
def test_scores_equal_loops(sizes):
    c = case(**sizes)
    dest, src = c.features, c.features[:, : c.n]
    A = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert_close(k.inner_product_scores(dest, src), loop_scores(lambda x, y: (x * y).sum(), dest, src))
    assert_close(k.bilinear_scores(dest, src, A), loop_scores(lambda x, y: y @ A @ x, dest, src))
    rbf = loop_scores(lambda x, y: -((x - y) ** 2).sum() / (2 * 0.7**2), dest, src)
    assert_close(k.log_rbf_scores(dest, src, 0.7), rbf)


def test_bilinear_scores_take_one_matrix_a_layer():
    c = case(3, 5, 0, 4, 0)
    A = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    layered = k.bilinear_scores(c.features, c.features, A[:, None])
    assert layered.shape == (2, 3, 6, 6)
    for layer in range(2):
        assert_close(layered[layer], k.bilinear_scores(c.features, c.features, A[layer]))


def test_bandwidth_must_be_positive():
    with pytest.raises(ValueError, match=r"bandwidth must be positive; found 0.0; log_rbf_scores"):
        k.log_rbf_scores(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), 0.0)


def test_softmax_kernel_normalises_over_sources_and_obeys_masks():
    scores = torch.tensor([[[0.0, math.log(3.0), -math.inf], [1.0, 1.0, 1.0]]])
    expected = torch.tensor([[[0.25, 0.75, 0.0], [1 / 3, 1 / 3, 1 / 3]]])
    assert_close(k.softmax_kernel(scores), expected)


@laws
@given(SIZES)
def test_state_kernel_equals_loop(sizes):
    c = case(**sizes)
    summary = k.state_kernel(c.kernel, c.states, c.rewards, num_states=c.num_states)
    for b in range(len(c.states)):
        M, P, r = loop_state_kernel(c, b)
        assert_close(summary.M_hat[b], M)
        assert_close(summary.P_hat[b], P)
        assert_close(summary.r_hat[b], r)
        sources = set(c.states[b, : c.n].tolist())
        assert summary.visited[b].tolist() == [s in sources for s in range(c.num_states)]
        assert bool(summary.closed[b]) == (c.states[b, c.n].item() in sources)
        assert_close(k.coverage(summary)[b].item(), len(sources) / c.num_states)


@laws
@given(SIZES)
def test_state_kernel_from_scores_gives_the_rows_that_columns_show(sizes):
    c = case(**sizes)
    seen = k.state_kernel(c.kernel, c.states, c.rewards, num_states=c.num_states)
    every = k.state_kernel_from_scores(c.scores, c.states, c.rewards)
    shown = torch.nn.functional.one_hot(c.states, c.num_states).any(1)
    for name in ("M_hat", "P_hat", "r_hat"):
        assert_close(getattr(seen, name)[shown], getattr(every, name)[shown])
        assert_close(getattr(seen, name)[~shown], torch.zeros_like(getattr(seen, name)[~shown]))
    assert_close(every.M_hat.sum(-1), torch.ones_like(every.r_hat))
    assert_close(every.P_hat.sum(-1), torch.ones_like(every.r_hat))
    assert_close(seen.visited, every.visited)
    assert_close(seen.closed, every.closed)


def test_state_kernel_takes_patterns_with_masked_query_columns():
    c = case(2, 6, 2, 4, 3)
    square = torch.cat([c.kernel, torch.zeros(2, 9, 3, dtype=torch.float64)], dim=-1)
    short = k.state_kernel(c.kernel[:, :7], c.states[:, :7], c.rewards, num_states=4)
    long = k.state_kernel(square, c.states[:, :7], c.rewards, num_states=4)
    for name in ("M_hat", "P_hat", "r_hat", "visited", "closed"):
        assert_close(getattr(long, name), getattr(short, name))


@pytest.mark.parametrize(
    ("pos", "keys", "n", "top", "text"),
    [
        (1, 1, 0, 0, r"a context must hold at least one transition; found 0 rewards; state_kernel"),
        (3, 3, 3, 0, r"3 transitions need at least 4 columns; found 3; state_kernel"),
        (4, 2, 3, 0, r"a kernel must have at least 3 sources; found 2; state_kernel"),
        (4, 3, 3, 5, r"states must lie in 0..4; found 5..5; state_kernel"),
        (4, 3, 3, -1, r"states must lie in 0..4; found -1..-1; state_kernel"),
    ],
)
def test_state_kernel_refuses_what_is_no_context(pos, keys, n, top, text):
    states = torch.full((1, pos), top)
    with pytest.raises(ValueError, match=text):
        k.state_kernel(torch.ones(1, pos, keys), states, torch.ones(1, n), num_states=5)
    if keys >= n:
        with pytest.raises(ValueError, match=text.replace("state_kernel", "state_kernel_from_scores")):
            k.state_kernel_from_scores(torch.ones(1, 5, 5), states, torch.ones(1, n))


def test_population_kernel_is_the_empirical_one_when_visits_follow_mu():
    counts = torch.tensor([3, 0, 5, 2])
    scores = torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    states = torch.cat([torch.repeat_interleave(torch.arange(4), counts), torch.zeros(1, dtype=torch.int64)])[
        None
    ]
    empirical = k.state_kernel_from_scores(scores, states, torch.ones(1, 10, dtype=torch.float64))
    assert_close(k.population_kernel(scores, counts[None].double() / 10), empirical.M_hat)
    total = sum(counts[u] * math.exp(scores[0, 2, u]) for u in range(4))
    assert_close(empirical.M_hat[0, 2, 0].item(), (3 * math.exp(scores[0, 2, 0]) / total).item())


def test_kernel_diagonality_and_margin_on_a_known_matrix():
    M = torch.tensor([[[0.9, 0.1, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]])
    visited = torch.tensor([[True, True, False]])
    seen, every = k.kernel_diagonality(M, visited), k.kernel_diagonality(M)
    assert_close(torch.stack([*seen, *every]).squeeze(1), torch.tensor([0.7, 0.5, 1.4 / 3, 0.0]))
    assert_close(k.assumption_margin(M[:, :2, :2], 0.5), torch.tensor([-0.25]))
    assert_close(k.assumption_margin(torch.eye(3), 0.5), torch.tensor(0.25))


@laws
@given(SIZES)
def test_norm_and_radius_equal_those_of_the_visited_submatrix(sizes):
    c = case(**sizes)
    summary = k.state_kernel(c.kernel, c.states, c.rewards, num_states=c.num_states)
    norm = k.contraction_norm(summary, gamma=c.gamma, w=c.w)
    radius = k.spectral_radius(summary, gamma=c.gamma, w=c.w)
    for b in range(len(c.states)):
        matrix = restricted(c, summary, b, c.w)
        assert_close(norm[b].item(), float(np.linalg.norm(matrix, np.inf)))
        # 1e-5: eigenvalues of defective matrices (states without a return) lose up to half of the digits.
        assert_close(radius[b].item(), float(np.abs(np.linalg.eigvals(matrix)).max()), atol=1e-5, rtol=1e-5)


@laws
@given(SIZES)
def test_bound_is_never_violated_and_radius_never_exceeds_norm(sizes):
    c = case(**sizes)
    for summary in (
        k.state_kernel(c.kernel, c.states, c.rewards, num_states=c.num_states),
        k.state_kernel_from_scores(c.scores, c.states, c.rewards),
    ):
        norm = k.contraction_norm(summary, gamma=c.gamma, w=c.w)
        assert (norm <= k.contraction_bound(summary, gamma=c.gamma, w=c.w) + 1e-12).all()
        assert (k.spectral_radius(summary, gamma=c.gamma, w=c.w) <= norm + 1e-9).all()


@laws
@given(SIZES, st.floats(0.01, 1.0))
def test_bound_is_the_step_bound_of_the_paper_at_theta_star(sizes, alpha):
    c = case(**sizes)
    summary = k.state_kernel(c.kernel, c.states, c.rewards, num_states=c.num_states)
    least = k.kernel_diagonality(summary.M_hat, summary.visited).min
    expected = 1 - alpha * (2 * least - 1 - c.gamma)
    assert_close(k.contraction_bound(summary, gamma=c.gamma, w=alpha * k.TD_WEIGHTS), expected)


def test_bound_is_attained_when_no_successor_meets_its_own_row():
    # States 0 -> 1 -> 0 with M = I: the row is |1 - alpha| + gamma alpha, off the diagonal only.
    eye, swap = torch.eye(2)[None], torch.eye(2).flip(0)[None]
    summary = k.StateKernel(
        M_hat=eye, P_hat=swap, r_hat=torch.zeros(1, 2), visited=torch.ones(1, 2) > 0, closed=torch.ones(1) > 0
    )
    w = 0.5 * k.TD_WEIGHTS
    assert_close(k.contraction_norm(summary, gamma=0.8, w=w), torch.tensor([0.9]))
    assert_close(k.contraction_bound(summary, gamma=0.8, w=w), torch.tensor([0.9]))
    assert_close(k.spectral_radius(summary, gamma=0.8, w=w), torch.tensor([0.9]))


def test_an_unvisited_state_forces_an_eigenvalue_one_only_outside_the_restriction():
    scores = 50 * torch.eye(3, dtype=torch.float64)[None]
    summary = k.state_kernel_from_scores(
        scores, torch.tensor([[0, 1, 0]]), torch.ones(1, 2, dtype=torch.float64)
    )
    matrix = k.value_iteration_matrix(summary, gamma=0.5)
    assert_close(torch.linalg.eigvals(matrix).abs().amax().item(), 1.0)
    assert_close(k.spectral_radius(summary, gamma=0.5).item(), 0.5)
    assert_close(k.coverage(summary).item(), 2 / 3)


@laws
@given(S=st.integers(1, 6), seed=st.integers(0, 999), gamma=st.floats(0, 0.95))
def test_the_population_summary_keeps_the_true_value_whatever_the_scores(S, seed, gamma):
    g = torch.Generator().manual_seed(seed)
    scores, r = (torch.randn(2, *size, generator=g, dtype=torch.float64) for size in ((S, S), (S,)))
    P = torch.rand(2, S, S, generator=g, dtype=torch.float64).softmax(-1)
    mu = torch.linalg.matrix_power(P, 300)[:, 0]
    kernel = k.population_state_kernel(scores, P, r, mu)
    assert_close(kernel.M_hat, k.population_kernel(scores, mu))
    assert bool(kernel.visited.all())
    assert bool(kernel.closed.all())
    value = torch.linalg.solve(torch.eye(S).double() - gamma * P, r)
    moved = value + 0.7 * (
        kernel.r_hat + torch.einsum("bst,bt->bs", gamma * kernel.P_hat - kernel.M_hat, value)
    )
    assert_close(moved, value)
