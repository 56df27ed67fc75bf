"""Phrases of findings on the algorithm that a network runs."""

from valuelens.analyses.report._phrase import Phrase


def _discount(x: float) -> str:
    return "; what it solves for is then the value at this discount"


IDENTIFY = {
    "algorithm": Phrase(
        noun="the algorithm",
        text="Seen through its {seen}, the network runs: {x}",
        beside="{name} runs: {c}",
        sampled="held-out tasks",
    ),
    "algorithm_class": Phrase(
        noun="the class of the algorithm",
        text="Rules that these prompts and interventions cannot tell apart here: {x}",
        beside="{name}: {c}",
        sampled="held-out tasks",
    ),
    "algorithm_margin": Phrase(
        noun="the margin",
        text="On average over layers, {other}, the best rule outside the class, leaves {x} more of the squared updates "
        "unexplained than {rule}",
        beside="the {name} alone is {c}",
        sampled="held-out tasks",
    ),
    "rule_error": Phrase(
        noun="what {rule} leaves unexplained, {scored},",
        text="{scored}, {rule} leaves {x} unexplained",
        beside="{name}: {c}",
        sampled="held-out tasks",
    ),
    "rule_response": Phrase(
        noun="the response to the intervention {intervention}",
        text='{rule} misses the response to the intervention "{intervention}" by {x} of its square',
        beside="{name} misses it by {c}",
        sampled="held-out tasks",
    ),
    "identified_discount": Phrase(
        noun="the effective discount of the named rule",
        text="The effective discount of {rule}, pooled over layers, is {x}",
        beside="the {name} is {c}",
        sampled="held-out tasks",
        comment=_discount,
    ),
    "splitting_prompt": Phrase(
        noun="the prompt that would split the class",
        text="What would split the class of rules: {x}",
        beside="the {name} is {c} of the response",
        sampled="held-out tasks",
    ),
}
