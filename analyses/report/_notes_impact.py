"""What has to be said beside a ranking of checkpoints: introductions, caveats, limitations."""

from collections.abc import Mapping, Sequence
from typing import Any

from valuelens.analyses._result import Finding
from valuelens.analyses.report._note import Applies, named

IMPACT_TITLES = {
    "choice": "Where to start RL",
    "flat": "Can RL learn anything there?",
    "arc": "Signal, headroom and gain over pretraining",
    "judgement": "Does the score foretell the gain?",
    "runs": "The RL runs",
}

IMPACT_INTRODUCTIONS = {
    "choice": "From which checkpoint should RL start? Each predictor would start where it is largest. "
    "What RL adds (gain) and where it ends (reward after RL) may call for different ones: early checkpoints can gain "
    "most and still end below late ones. Regret is by how much a choice falls short of the best checkpoint: its "
    "price. Compare it with that of taking the last checkpoint, or any.",
    "flat": "Critic-free RL compares the rollouts of one prompt (a group) with each other. Where all of them get the "
    "same reward there is no advantage, no gradient, and nothing to learn: look here first where a trainer reports "
    "reward 0 and loss 0.",
    "arc": "How much signal does an update carry (signal), how much could re-weighting the policy's own samples gain "
    "(headroom), and where is the product of both, the score, largest? Early on there is nothing to tell good from "
    "bad, late on little is left to gain.",
    "judgement": "Is the score worth its price? Where RL was run from the checkpoints, predictors are compared with "
    "what it brought: ours, and one-line rivals on the same rollouts. One comparison is primary and was fixed in "
    "advance; all others are exploratory, and the best of many looks better than it is.",
    "runs": "What did RL do? The same short recipe from every checkpoint, with several seeds, and once more with all "
    "credit through time cut: what is lost then is what attention's backward pass carries.",
}


def _gained(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    return any(f.name == "gain" and isinstance(f.estimate, int | float) for f in findings)


def _not_gained(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    return not _gained(findings, provenance)


def _flat_somewhere(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    shares = [f.estimate for f in findings if f.name == "frac_reward_zero_std"]
    return any(isinstance(share, int | float) and share > 0 for share in shares)


def _uncorrelated(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    found = [f for f in findings if f.name == "spearman" and f.index.get("target") == "gain"]
    return bool(found) and all(f.estimate is None for f in found)


def _always(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    return True


def _one_seed(findings: Sequence[Finding], provenance: Mapping[str, Any]) -> bool:
    counts = [f.n for f in findings if f.name == "gain"]
    return bool(counts) and max(counts) == 1


IMPACT_NOTES: dict[str, tuple[tuple[Applies, str], ...]] = {
    "choice": (
        (
            _not_gained,
            "No RL was run, so this is advice without evidence on these checkpoints. Run the recipe from the "
            "recommended checkpoint and from the last one before much is spent on either.",
        ),
        (
            _gained,
            "The score is meant to foretell the gain. For reward after RL, add the reward that is there already: "
            "reward + score. Whoever trains on cares for the second; whoever studies what RL adds, for the first.",
        ),
        (
            _gained,
            "Regret is what a decision costs; a correlation is not. Where most checkpoints gain about the same, a "
            "ranking is mostly noise: then judge by regret. The best of noisy means looks better than it is, so every "
            "regret is somewhat too large.",
        ),
        (
            named("probability_best"),
            "The probability that a choice is the best: how often it comes out first when the RL seeds of every "
            "checkpoint are redrawn. A value near 1 / checkpoints is a guess.",
        ),
        (
            _gained,
            "Regret in hindsight is measured with the compact recipe that is shown below. A longer run, another "
            "learning rate or a larger batch may favour another checkpoint.",
        ),
    ),
    "flat": (
        (
            _flat_somewhere,
            "Groups with equal rewards are counted, not dropped: their signal is 0 and pulls the checkpoint's score "
            "down, as they would waste that share of an RL batch.",
        ),
        (
            _always,
            "If all rewards are 0, the task is out of reach there: start later, or use an easier task, a denser reward "
            "or more rollouts a prompt. If all are at the top, it is mastered: start earlier, or use a harder task.",
        ),
    ),
    "arc": (
        (
            _always,
            "Signal, headroom and score have no unit in common with reward, and one variant of each is used for all "
            "checkpoints. Only their order over checkpoints of one series means something; do not compare scores "
            "across tasks, models or variants.",
        ),
        (
            _always,
            "Headroom is what re-weighting the policy's own samples could gain at the stated beta. It is 0 where the "
            "better answer is never sampled, and where nothing better is left. RL can find answers that were never "
            "sampled here; headroom cannot see that.",
        ),
        (
            _always,
            "The score scales about like the cube of the standard deviation of rewards, so that one number is its "
            "closest rival: see whether the score adds anything to it.",
        ),
        (
            named("gain_cut"),
            "Gain with credit through time cut: the same RL, with keys and values taken from a detached residual "
            "stream, so that no gradient reaches earlier positions. Where both gains agree, the mechanism that the "
            "signal measures is not what made RL work on this task.",
        ),
        (
            _one_seed,
            "One RL seed: no interval can be given, and differences between checkpoints may be those of the seed.",
        ),
    ),
    "judgement": (
        (
            _uncorrelated,
            "With few checkpoints a correlation says nothing (of 10 checkpoints, .60 has a 95 % interval of about -.07 "
            "to .90), so below 8 none is given. Scores, gains and regrets stand on their own.",
        ),
        (
            _gained,
            "Checkpoints of one run resemble their neighbours, so there are fewer independent ones than it seems: the "
            "interval is over series where there are six or more, else over blocks of neighbours. The naive interval "
            "beside it is too narrow.",
        ),
        (
            _gained,
            "Published .60 (score with gain) and .73 (reward + score with reward after RL) are of another model and "
            "task, with formulas that we do not know; the pilots' numbers come from other runs of ours. Neither is to "
            "be reached here.",
        ),
        (
            named("loo_error"),
            "Leave-one-out predictions are judged by their error only. Of a useless score they correlate with the gain "
            "at about -.4 by construction.",
        ),
        (
            named("spearman_partial"),
            "Given R_0: what a predictor says beyond the reward before RL, which sets how much is left to gain.",
        ),
    ),
    "runs": (
        (
            _always,
            "Curves are of the rollouts that RL trained on, whose prompts change from step to step. Gains in tables "
            "are on held-out prompts, the same before and after.",
        ),
    ),
}

IMPACT_LIMITATIONS = (
    "The formulas of signal and headroom are our definitions: the source states that impact is proportional to their "
    "product, but not how they are taken. Other variants are in the tables, named.",
    "Evidence is from small models, short RL runs and the tasks shown. Nothing here shows that the ranking holds "
    "for large models, long runs or other rewards.",
    "Signal x headroom is taken at the start of RL: a first-order signal, and headroom within what is sampled already. "
    "It cannot tell exploration that finds new answers, forgetting, reward hacking, instability, or where a long run "
    "ends up.",
    "A ranking says which of these checkpoints, for this task, reward and sampling. It does not say that RL is worth "
    "while at all; the gains do.",
)

IMPACT_CHOICES = {
    "signal": "signal (variant named above)",
    "headroom": "headroom (variant named above)",
    "impact": "score (signal x headroom)",
    "recommended": "recommended checkpoint (where the score is largest)",
    "probability_best": "probability of being the best (RL seeds of every checkpoint redrawn)",
    "regret": "regret (against the best checkpoint, in gain or in reward after RL)",
    "loo_error": "leave-one-out error",
    "spearman": "Spearman correlation (its pooling over series and its intervals)",
    "spearman_partial": "the same, given the reward before RL",
    "spearman_difference": "the difference to the best rival",
    "update_aligned": "update-aligned signal (the gradient of one half of the rollouts times the other half's update)",
}
"""Names of definitions that are ours, with what was chosen."""
