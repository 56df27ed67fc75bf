"""Shares, gap and cosine against slow loops over rollouts and states."""

import math

import pytest
import torch

from valuelens.probe import HopCredit, Hops, hop_credit, joined_credit


@pytest.fixture
def hops(generator: torch.Generator) -> Hops:
    """Three rollouts of 4, 1 and 3 states; 3 hops, 2 layers."""
    valid = torch.arange(4) < torch.tensor([4, 1, 3])[:, None]
    values = torch.randn(3, 3, 2, 4, 5, generator=generator, dtype=torch.float64)
    return Hops(
        values=values * valid[:, None, None, :, None],
        embeddings=torch.zeros(3, 3, 7, 5, dtype=torch.float64),
        remainder=torch.zeros(2),
        layers=(0, 2),
        positions=torch.zeros(3, 4).long(),
        valid=valid,
    )


def part(hops: Hops, rows: slice, hop: int, states: int) -> Hops:
    """Some rollouts, as a micro-batch of less hops and states would have them."""
    return Hops(
        values=hops.values[rows, :hop, :, :states],
        embeddings=hops.embeddings[rows, :hop],
        remainder=hops.remainder,
        layers=hops.layers,
        positions=hops.positions[rows, :states],
        valid=hops.valid[rows, :states],
    )


def test_shares_gap_and_cosine_are_those_of_slow_loops(hops: Hops) -> None:
    credit = hop_credit(hops)
    for layer in range(2):
        for states in (range(4), *([state] for state in range(4))):
            products, whole, direct, missing = [0.0] * 3, 0.0, 0.0, 0.0
            for row in range(3):
                for state in states:
                    terms = hops.values[row, :, layer, state]
                    total = terms.sum(0)
                    products = [p + float(term @ total) for p, term in zip(products, terms, strict=True)]
                    whole += float(total @ total)
                    direct += float(terms[0] @ terms[0])
                    missing += float((total - terms[0]) @ (total - terms[0]))
            expected = [p / whole for p in products]
            gap, cosine = math.sqrt(missing / whole), products[0] / math.sqrt(direct * whole)
            if len(states) == 4:
                found = (credit.shares[:, layer], credit.gap[layer], credit.cosine[layer])
            else:
                shares, at = credit.shares_by_state[:, layer, states[0]], (layer, states[0])
                found = (shares, credit.gap_by_state[at], credit.cosine_by_state[at])
            assert found[0].tolist() == pytest.approx(expected)
            assert float(found[1]) == pytest.approx(gap)
            assert float(found[2]) == pytest.approx(cosine)
    torch.testing.assert_close(credit.shares.sum(0), torch.ones(2, dtype=torch.float64))


def test_without_hops_there_is_no_gap(hops: Hops) -> None:
    credit = hop_credit(part(hops, slice(0, 3), 1, 4))
    assert credit.shares.tolist() == [[1.0, 1.0]]
    assert credit.gap.tolist() == [0.0, 0.0]
    torch.testing.assert_close(credit.cosine, torch.ones(2, dtype=torch.float64))


def test_micro_batches_are_joined(hops: Hops) -> None:
    """One of them has less hops, the other fewer states."""
    short = torch.cat([hops.values[:2], torch.zeros_like(hops.values[2:])])
    short[2, :2] = hops.values[2, :2]
    hops = Hops(**{name: getattr(hops, name) for name in Hops.__slots__} | {"values": short})
    expected = hop_credit(hops)
    pieces = [part(hops, slice(0, 2), 3, 4), part(hops, slice(2, 3), 2, 3)]
    found = joined_credit(hop_credit(piece) for piece in pieces)
    for name in HopCredit.__slots__:
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))
