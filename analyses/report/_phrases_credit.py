"""Phrases of findings on credit: how many sampled tokens it crossed, what entropy bounds, which heads carry it."""

from valuelens.analyses._question import Phrase


def _risen(x: float) -> str:
    return ", that is, they rise" if x < 0 else ""


def _unproven(x: float) -> str:
    return ": so loose that the bound says little" if x < 0.01 else ""


HOPS = {
    "hop_share": Phrase(
        noun="{whose} share of credit that crosses {hop} sampled tokens",
        text="{inside}credit that crossed {hop} sampled tokens makes up {x} of the relaxed sum",
        beside="{name}: {c}",
        sampled="groups",
    ),
    "gap_relaxed": Phrase(
        noun="{whose} relaxed gap",
        text="{inside}without the sampling path the {objective} costate differs by {x} of the norm of the relaxed "
        "sum",
        beside="{name}: {c}",
        sampled="groups",
    ),
    "remainder": Phrase(
        noun="{whose} remainder of the sum over hops",
        text="{inside}the hops that were left out are estimated at {x} of the norm of the relaxed sum",
        beside="{name}: {c}",
        sampled="rollouts",
    ),
    "bound_tightness": Phrase(
        noun="{whose} tightness of the {form} form of the entropy bound",
        text="{inside}the median error is {x} of what the {form} form of the bound allows",
        beside="{name}: {c}",
        sampled="states",
        comment=_unproven,
    ),
    "entropy_correlation": Phrase(
        noun="{whose} rank correlation of entropy and relaxed gap",
        text="{inside}with position held fixed, entropy and relaxed gap have a partial rank correlation of {x}",
        beside="{name}: {c}",
        sampled="states",
    ),
    "jacobian_norm": Phrase(
        noun="{whose} norm of the paths through {form}",
        text="{inside}the paths through {form} from a state to a later one's logits have a spectral norm of {x} on "
        "average (a lower bound, by power iteration)",
        beside="{name}: {c}",
        sampled="pairs of states",
    ),
    "path_cosine": Phrase(
        noun="{whose} cosine between attention and sampling paths",
        text="{inside}the directions to which attention and sampling paths respond most have a cosine of {x} on "
        "average, sign aside",
        beside="{name}: {c}",
        sampled="pairs of states",
    ),
}

HEADS = {
    "head_share": Phrase(
        noun="the share of head {head} of block {block} ({path} path) in the costate at layer {layer}",
        text="head {head} of block {block} carries ({path} path) a share {x} of the {objective} costate at layer "
        "{layer}",
        beside="{name}: {c}",
        sampled="groups",
    ),
    "head_ablation": Phrase(
        noun="what early costates lose without heads {heads} ({way})",
        text="without heads {heads} (block.head; {way}; {ablated}) early {objective} costates at layer {layer} lose "
        "{x} of their square",
        beside="{name}: {c}",
        sampled="groups",
        comment=_risen,
    ),
}
