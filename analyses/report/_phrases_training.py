"""Phrases of findings on whole runs: from which optimiser step on each property lasts."""

from valuelens.analyses._question import Phrase

TRAINING = {
    "emergence_step": Phrase(
        noun='the step from which "{property}" lasts',
        text='"{property}" holds from optimiser step {x} until the end',
        beside="{name} it measures {c}",
        sampled="checkpoints",
    ),
    "emergence_over_seeds": Phrase(
        noun='the mean step over seeds from which "{property}" lasts',
        text='"{property}" holds until the end from optimiser step {x} on, in the geometric mean over seeds',
        beside="{name}: {c}",
        sampled="seeds",
    ),
    "emergence_order": Phrase(
        noun="the order in which properties appear",
        text="Properties appear in this order, by their step (of several seeds the median): {x}",
        beside="{name}: {c}",
        sampled="seeds",
    ),
    "emergence_precedes": Phrase(
        noun='the share of seeds on which "{first}" comes before "{second}"',
        text='"{first}" comes before "{second}" on a share of {x} of the seeds',
        beside="{name}: {c}",
        sampled="seeds",
    ),
}
