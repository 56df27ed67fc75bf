"""Phrases of findings on language models: why a reward is flat, and what the backward pass carries."""

from valuelens.analyses._question import Phrase


def _flat_groups(x: float) -> str:
    if x == 1:
        return ", so that every advantage is 0 and nothing is learnt"
    return ", and those teach nothing" if x > 0 else ""


def _signal(x: float) -> str:
    return "" if x > 0 else ", not above 0: no signal was seen"


def _alike(x: float) -> str:
    return ", that is, for at least half of the tokens not at all" if x == 0 else ""


def _flat(x: float) -> str:
    return "" if x > 0 else ", so nothing tells rollouts apart"


DIAGNOSIS = {
    "diagnosis": Phrase(noun="the diagnosis", text="in short: {x}", beside="{name}: {c}", sampled="groups"),
    "frac_reward_zero_std": Phrase(
        noun="the share of groups with equal rewards",
        text="in a share {x} of the groups all rewards are equal",
        beside="{name}: {c}",
        sampled="groups",
        comment=_flat_groups,
    ),
    "reward": Phrase(
        noun="the mean reward", text="the mean reward is {x}", beside="{name}: {c}", sampled="groups"
    ),
    "reward_std": Phrase(
        noun="the standard deviation of rewards within a group",
        text="within a group, rewards have a standard deviation of {x} on average",
        beside="{name}: {c}",
        sampled="groups",
        comment=_flat,
    ),
    "best_of_k": Phrase(
        noun="the best of {k} rollouts",
        text="the best of {k} rollouts of a prompt has a reward of {x} on average",
        beside="{name}: {c}",
        sampled="groups",
    ),
    "entropy": Phrase(
        noun="the policy's entropy",
        text="the policy's entropy is {x} {unit}, averaged over completion states",
        beside="{name}: {c}",
        sampled="groups",
    ),
    "completion_length": Phrase(
        noun="the length of completions",
        text="completions have {x} tokens on average",
        beside="{name}: {c}",
        sampled="rollouts",
    ),
    "truncated_share": Phrase(
        noun="the share of truncated completions",
        text="a share {x} of the completions was cut off before it ended by itself",
        beside="{name}: {c}",
        sampled="rollouts",
    ),
    "log_prob_mismatch": Phrase(
        noun="the mismatch to logged log-probabilities",
        text="logged log-probabilities differ from the model's own by {x} nats a token (median)",
        beside="{name} {c}",
        sampled="rollouts",
        comment=_alike,
    ),
}

COSTATES = {
    "objective": Phrase(
        noun="the objective",
        text="the objective whose costates these are: {x}",
        beside="{name}: {c}",
        sampled="rollouts",
    ),
    "signal_to_noise": Phrase(
        noun="{whose} signal-to-noise of the {objective} costate",
        text="{inside}the {objective} costate at the shared start state has a signal-to-noise of {x} a rollout",
        beside="with {name} it is {c}",
        sampled="groups",
        comment=_signal,
    ),
    "rollouts_needed": Phrase(
        noun="{whose} number of rollouts needed ({objective})",
        text="{inside}the mean {objective} costate of {x} rollouts of one prompt would have cosine 0.9 with its "
        "expectation",
        beside="with {name} it is {c}",
        sampled="groups",
    ),
    "standard_error": Phrase(
        noun="{whose} standard error of the mean {objective} costate",
        text="{inside}the mean {objective} costate of a group at its start state has a standard error of norm {x}",
        beside="{name}: {c}",
        sampled="groups",
    ),
    "costate_norm": Phrase(
        noun="{whose} norm of the {objective} costate",
        text="{inside}the {objective} costate of a rollout has norm {x} (root mean square over its states)",
        beside="{name}: {c}",
        sampled="groups",
    ),
    "locality": Phrase(
        noun="{whose} locality of the {objective} costate",
        text="{inside}a share {x} of the {objective} costate comes from the state's own token",
        beside="with {name} it is {c}",
        sampled="groups",
    ),
    "cosine": Phrase(
        noun="{whose} cosine of the {objective} costate with the value gradient",
        text="{inside}the {objective} costate has cosine {x} with the {against} value gradient",
        beside="with {name} it is {c}",
        sampled="groups",
    ),
    "gap_discrete": Phrase(
        noun="{whose} gap of the {objective} costate to the value gradient",
        text="{inside}a group's mean {objective} costate at its start state misses the enumerated value gradient by "
        "{x} of its norm",
        beside="{name}: {c}",
        sampled="groups",
    ),
}
