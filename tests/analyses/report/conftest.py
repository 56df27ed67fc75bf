"""Results on language models as the analyses write them, their numbers simulated from a generator."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from valuelens.analyses import Array, Control, Finding, Result
from valuelens.analyses.impact import CURVES, GAINS, SCORES, ScoreConfig, impact_result

PROMPTS = (
    'What is <b>2 & 3</b>, "quoted"?',
    "כמה הם 4 ועוד 5? ענה במילה אחת",
    "كم يساوي 7 + 8؟",
    "Add the numbers and answer with one of them only. " * 20,
    "it's <script>alert(1)</script> & co",
)
PERMUTED, WIDTH, STATES, N = "advantages permuted within groups", 16, 24, 16
HOPS = 4
WHY = {"interval": "not sampled", "control": "nothing to compare with"}
Make = Callable[..., Result]


def found(name: str, estimate: Any, n: int, unit: str = "1", **more: Any) -> Finding:
    control = more.pop("control", None)
    beside = control and Control(name=control[0], estimate=control[1])
    missing = {
        "estimate": estimate is None,
        "interval": "interval" not in more,
        "control": control is None or control[1] is None,
    }
    why = {key: text for key, text in {**WHY, **more.pop("reasons", {})}.items() if missing[key]}
    fields = {"definition": "derived", "reasons": why, **more}
    return Finding(name=name, estimate=estimate, unit=unit, n=n, control=beside, **fields)


def around(values: np.ndarray) -> dict[str, Any]:
    half = 2 * values.std() / max(1, len(values)) ** 0.5
    return {"interval": (float(values.mean() - half), float(values.mean() + half))}


def diagnosed(rng: np.random.Generator, groups: int, flat: float) -> tuple[list[Finding], pd.DataFrame]:
    skill = rng.beta(0.8, 1.6, size=groups) * (rng.random(groups) >= flat)
    rewards = rng.binomial(4, skill[:, None], size=(groups, N)) / 4
    std, best = rewards.std(1, ddof=1), np.sort(rewards, 1)[:, -3]
    entropy = rng.gamma(4, 0.3, size=groups)
    table = pd.DataFrame(
        {
            "group": range(groups),
            "prompt": [PROMPTS[k % len(PROMPTS)] for k in range(groups)],
            "n": N,
            "reward_mean": rewards.mean(1),
            "reward_std": std,
            "reward_min": rewards.min(1),
            "reward_max": rewards.max(1),
            "entropy": entropy,
            "length": rng.uniform(8, STATES, size=groups),
        }
    )
    share, varied = float((std == 0).mean()), int((std > 0).sum())
    words = (
        f"Rewards vary within {varied} of {groups} groups."
        if varied
        else "Every group has the same reward, so there is nothing to learn from. Make the task easier."
    )
    count = groups * N
    return [
        found("diagnosis", words, groups, "words"),
        found(
            "reward",
            float(rewards.mean()),
            groups,
            control=("largest reward possible", 1.0),
            **around(rewards.mean(1)),
        ),
        found(
            "reward_std",
            float(std.mean()),
            groups,
            control=("standard deviation over all rollouts", float(rewards.std())),
            **around(std),
        ),
        found(
            "best_of_k",
            float(best.mean()),
            groups,
            index={"k": 8},
            control=("mean reward", float(rewards.mean())),
            **around(best),
        ),
        found("frac_reward_zero_std", share, groups, interval=(0.9 * share, share + 0.1 * (1 - share))),
        found(
            "entropy",
            float(entropy.mean()),
            groups,
            "nats",
            control=("uniform policy", float(np.log(49152))),
            **around(entropy),
        ),
        found("completion_length", float(table["length"].mean()), count, "tokens"),
        found("truncated_share", 0.125, count, interval=(0.1, 0.15)),
        found(
            "log_prob_mismatch",
            0.003,
            count,
            "nats a token",
            definition="choice",
            control=("refused above", 0.02),
        ),
    ], table


def measured(
    rng: np.random.Generator, layer: int, last: int, groups: int, objective: str
) -> tuple[list[Finding], pd.DataFrame, np.ndarray]:
    """Costates of a layer at the start state: a mean and a noise that shrink with depth; statistics as defined."""
    scale, index = 0.4 * 0.9**layer, {"objective": objective, "layer": layer}
    truth = scale * 0.15 * rng.normal(size=(groups, 1, WIDTH))
    costates = truth + scale * rng.normal(size=(groups, N, WIDTH))
    mean, cov = costates.mean(1), costates.var(1, ddof=1).sum(-1)
    snr = ((mean**2).sum(-1) - cov / N) / cov
    noise = float(rng.normal(0, 0.01))
    norm, error = np.sqrt((costates**2).sum(-1).mean()), np.sqrt((cov / N).mean())
    local = 1.0 if layer == last else 0.2 + 0.6 * layer / last
    needed = float(0.81 / 0.19 / snr.mean()) if snr.mean() > 0 else None
    reasons = {**WHY, "estimate": "the signal is not above 0", "control": "the signal is not above 0"}
    states = np.arange(STATES)
    decay = np.exp(-states / 20) * rng.normal(1, 0.05, size=STATES)
    table = pd.DataFrame(
        {
            "layer": layer,
            "state": states,
            "n": (groups * N * np.exp(-states / 15)).astype(int),
            "norm": norm * decay,
            "mean_norm": np.sqrt((mean**2).sum(-1).mean()) * decay,
            "signal_to_noise": snr.mean(),
            "locality": np.clip(local * rng.normal(1, 0.02, size=STATES), 0, 1) if layer < last else 1.0,
            "entropy": 1.2,
        }
    )
    parts = [
        found(
            "costate_norm",
            float(norm),
            groups,
            "objective / unit of h",
            index=index,
            control=("own token alone", float(norm * local)),
            **around(np.sqrt((costates**2).sum(-1).mean(1))),
        ),
        found(
            "standard_error",
            float(error),
            groups,
            index={**index, "at": "start"},
            control=("norm of the mean costate", float(np.sqrt((mean**2).sum(-1).mean()))),
        ),
        found(
            "signal_to_noise",
            float(snr.mean()),
            groups,
            index={**index, "at": "start"},
            definition="choice",
            control=(PERMUTED, float(noise)),
            **around(snr),
        ),
        found(
            "rollouts_needed",
            needed,
            groups,
            "rollouts of a prompt",
            index={**index, "at": "start"},
            definition="choice",
            control=(PERMUTED, 0.81 / 0.19 / noise if noise > 0 else None),
            reasons=reasons,
        ),
        found(
            "locality",
            float(local),
            groups,
            index=index,
            definition="choice",
            interval=(local - 0.02, local + 0.02),
            control=("credit spread evenly over the tokens to come", 0.15),
        ),
    ]
    return parts, table, np.stack([mean, truth[:, 0]])


def against_enumerated(means: np.ndarray, layer: int, objective: str) -> list[Finding]:
    mean, truth = means
    index = {"objective": objective, "layer": layer, "against": "enumerated"}
    cosine = (mean * truth).sum(-1) / np.linalg.norm(mean, axis=-1) / np.linalg.norm(truth, axis=-1)
    gap = np.linalg.norm(mean - truth, axis=-1) / np.linalg.norm(truth, axis=-1)
    return [
        found(
            "cosine",
            float(cosine.mean()),
            len(cosine),
            index=index,
            control=(PERMUTED, 0.02),
            reasons={"interval": "gap_discrete has one"},
        ),
        found(
            "gap_discrete",
            float(gap.mean()),
            len(gap),
            index=index,
            control=("noise of the mean alone", float(0.97 * gap.mean())),
            **around(gap),
        ),
    ]


def by_hop(rng: np.random.Generator, layers: Sequence[int]) -> tuple[list[Finding], pd.DataFrame]:
    """Credit that falls to a third with every crossing; shares add up to 1."""
    findings, rows = [], []
    for layer in layers:
        index = {"objective": "reward", "layer": layer}
        norms = 0.3 ** np.arange(HOPS) * rng.uniform(0.8, 1.2, HOPS)
        for hop, share in enumerate(norms / norms.sum()):
            limits = (float(share - 0.02), float(share + 0.02))
            findings.append(
                found("hop_share", float(share), 32, index={**index, "hop": hop}, interval=limits)
            )
            rows += [
                {"layer": layer, "hop": hop, "state": k, "n": 9, "norm": norms[hop] * 0.9**k, "share": share}
                for k in range(STATES)
            ]
        findings.append(found("gap_relaxed", float(norms[1:].sum() / norms.sum()), 32, index=index))
        findings.append(found("remainder", 0.004, 512, index=index))
        findings.append(found("cosine", 0.9, 32, index={**index, "against": "relaxed"}))
    return findings, pd.DataFrame(rows)


def made(
    layers: Sequence[int] = (0, 15, 22),
    *,
    num_layers: int = 30,
    groups: int = 32,
    flat: float = 0.2,
    enumerated: bool = False,
    objective: str = "surrogate",
    **provenance: Any,
) -> Result:
    """The diagnosis alone where every group is flat."""
    rng = np.random.default_rng(0)
    findings, table = diagnosed(rng, groups, flat)
    tables, arrays = {"groups": table}, {}
    if flat < 1:
        findings.append(found("objective", objective, groups * N, "name", definition="source"))
        whole = [measured(rng, layer, num_layers, groups, objective) for layer in layers]
        for layer, (parts, _, means) in zip(layers, whole, strict=True):
            findings += parts + (against_enumerated(means, layer, objective) if enumerated else [])
        tables["positions"] = pd.concat([positions for _, positions, _ in whole])
        if objective == "reward":
            more, tables["hops"] = by_hop(rng, layers)
            findings += more
        start = torch.tensor(np.stack([means[0] for *_, means in whole], 1))
        arrays["start_costate"] = Array(axes="group layer d_model", values=start)
    origin = {
        "request": {"positions": "completion", "seed": 0, "prompt": PROMPTS[0]},
        "model": {
            "name": "HuggingFaceTB/SmolLM2-135M-Instruct",
            "family": "llama",
            "num_layers": num_layers,
            "d_model": 576,
            "parameters": 134515008,
            "sha256": "ab" * 32,
            "origin": {"revision": "main"},
        },
        "rollouts": {
            "source": "generated from the task addition",
            "count": groups * N,
            "groups": groups,
            "tokens": int(N * table["length"].sum()),
        },
        "sampling": {"temperature": 0.7, "top_k": 50, "top_p": 1.0},
        "loss_type": "none",
        "baseline": "group-mean",
        "scale_rewards": "none",
        "dtype": "measured in float32",
        "device": "cpu",
        "mask": "causal",
        "versions": {"torch": "2", "transformers": "5"},
        "finished": "2026-01-01T00:00:00",
        "seconds": 81.25,
    }
    return Result(
        kind="costates",
        verdict="The simulated costates are what they are.",
        findings=tuple(findings),
        provenance={**origin, **provenance},
        arrays=arrays,
        tables=tables,
    )


@pytest.fixture(scope="session")
def language_result() -> Make:
    """Makes results of kind `costates`: layers, num_layers, groups, share of flat groups, enumerated, objective."""
    return made


SERIES = ('copy <20 %> & "shuffled"', "סדרה שנייה", "a third series, whose name has " + "many words " * 9)


def scored(rng: np.random.Generator, t: float, flat: bool) -> dict[str, float]:
    """A checkpoint at a share t of pretraining: spread in the middle, headroom early."""
    std = 0.0 if flat else 1.4 * t * (1 - t) + 0.02
    signal = std * (0.1 + 0.05 * rng.random())
    headroom = 0.0 if flat else 0.3 * (1 - t) + 0.05 * rng.random()
    parts = {"subtractive": signal, "usable": 0.8 * signal, "update_aligned": 1.1 * signal}
    rooms = {"tilt": headroom, "shortfall": 1.1 * headroom, "best_of_k": 0.9 * headroom}
    return {
        **{
            "reward": 0.15 + 0.6 * t,
            "reward_std": std,
            "frac_reward_zero_std": 1.0 if flat else 0.9 * (1 - t) ** 2,
        },
        **{"entropy": 1.6 - t, "best_of_k": 0.8 * std, "pass_at_k": 0.5 * std, "gradient_norm": 2 * std},
        **{"held_out_loss": 2 - t, "gap_relaxed": 0.2, "token_passes": 1e6, "seconds": 3.5},
        **{f"signal_{name}": value for name, value in parts.items()},
        **{f"headroom_{name}": value for name, value in rooms.items()},
        **{
            "signal": signal,
            "headroom": headroom,
            "impact": signal * headroom,
            "update_aligned": 1.1 * signal,
        },
    }


def trained(rng: np.random.Generator, row: dict[str, Any], seeds: int) -> tuple[list[Any], list[Any]]:
    """RL runs of a checkpoint, whole and cut, with their learning curves."""
    runs, curves = [], []
    for seed, cut in ((seed, cut) for seed in range(seeds) for cut in (False, True)):
        gain = (2.0 - 0.5 * cut) * row["reward_std"] * row["headroom"] / 0.3 + 0.03 * rng.normal()
        place = {"series": row["series"], "checkpoint": row["checkpoint"], "recipe": "default"}
        place |= {"rl_seed": seed, "cut": cut}
        ends = {"reward_before": row["reward"], "reward_after": row["reward"] + gain, "gain": gain}
        runs.append(place | ends)
        curves += [place | {"step": k, "reward": row["reward"] + gain * k / 8} for k in range(9)]
    return runs, curves


@functools.cache
def ranked(
    series: int = 1,
    *,
    checkpoints: int = 14,
    seeds: int = 3,
    named: bool = False,
    flat: tuple[int, ...] = (),
    lost: tuple[str, ...] = (),
) -> Result:
    """Gains of so many RL seeds, maybe 0; checkpoints named in words; flat ones; columns that are unknown."""
    rng, scores, gains, curves = np.random.default_rng(0), [], [], []
    for name in SERIES[:series]:
        for k in range(checkpoints):
            step = round(20 * 126 ** (k / max(1, checkpoints - 1)))
            label = f'<b>{k} & "נקודה"</b>' if named else f"step-{step:08d}"
            place = {"series": name, "checkpoint": label, "step": np.nan if named else step}
            row = {**place, "prompts": 32, "rollouts": 512, "gap_discrete": np.nan}
            row |= scored(rng, (k + 0.5) / checkpoints, k in flat) | dict.fromkeys(lost, np.nan)
            runs, steps = trained(rng, row, seeds)
            scores.append(row)
            gains, curves = gains + runs, curves + steps
    tables = ((scores, SCORES), (gains, GAINS), (curves, CURVES))
    result = impact_result(
        *(pd.DataFrame(rows, columns=list(names)) for rows, names in tables), ScoreConfig()
    )
    origin = {
        **{"signal": "subtractive", "headroom": "tilt", "beta": 5.0, "reward_range": [0, 2]},
        "task": {"name": "label-copy", "sizes": {"num_pairs": 3}},
        "model": {"family": "llama", "layers": 2, "vocabulary": 15, "width": 64},
        "sampling": {"temperature": 1.0, "top_k": 0, "top_p": 1.0},
        "request": {"seed": 3, "checkpoints": {row["checkpoint"]: "ab" * 32 for row in scores}},
        "versions": {"torch": "2"},
    }
    return replace(result, provenance=origin)


@pytest.fixture(scope="session")
def ranked_result() -> Make:
    """Makes results of kind `impact`: series, checkpoints, RL seeds, named in words, flat ones, lost columns."""
    return ranked
