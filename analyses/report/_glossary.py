"""The words of a report that a newcomer cannot know, each in one or two plain sentences, and where they are marked."""

import re
from dataclasses import dataclass

from markupsafe import Markup, escape


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """A word that the glossary explains.

    Attributes:
        name: The word.
        pattern: How it is written in sentences, as a regular expression without groups.
        text: What it means.
    """

    name: str
    pattern: str
    text: str

    @property
    def anchor(self) -> str:
        """Its place on a page."""
        return f"term-{re.sub('[^a-z]+', '-', self.name.lower()).strip('-')}"


TERMS = (
    Term(
        name="our definition",
        pattern=r"our definitions?|our choice",
        text="The papers name this quantity but do not say exactly how it is taken, so we chose how. Another choice "
        "may give another number.",
    ),
    Term(
        name="interval",
        pattern=r"95 % intervals?|intervals?",
        text="The range in which the true number lies with 95 % confidence, from drawing the measured tasks, prompts "
        "or seeds anew. What it is taken over is said beside it.",
    ),
    Term(
        name="control",
        pattern=r"controls?",
        text="The same measurement on something that cannot have the property: a predictor that sees no state, "
        "shuffled labels, an untrained network. A number says something only where it differs from its control.",
    ),
    Term(
        name="constant predictor",
        pattern=r"constant predictors?",
        text="A forecast of the same value for every state, the mean reward / (1 - gamma). It knows the rewards and "
        "sees no state.",
    ),
    Term(
        name="squared value error",
        pattern=r"[Ss]quared (?:value )?errors?|MSVE",
        text="Squared difference between the value that is read and the true one, on average over states. Over which "
        "states is said beside it, and the numbers differ: at the query state, the last of a context, which may be one "
        "that the context never left; over the states of the contexts, each as often as it is visited; over the states "
        "that a context leaves, all columns but the query; or over all states weighted by the stationary "
        "distribution, by how often an endless walk visits them.",
    ),
    Term(
        name="value slot",
        pattern=r"value slots?|slots?",
        text="A place in the residual stream, the model's working memory, where the model keeps its current estimate "
        "of a state's value: how much reward is still to come, later rewards counting less.",
    ),
    Term(
        name="value lens",
        pattern=r"value lens",
        text="The value that is read out after every layer, as if the model ended there.",
    ),
    Term(
        name="TD error",
        pattern=r"TD errors?",
        text="Reward plus discounted value of the next state, minus the value of this state: by how much the values "
        "contradict what was just seen. Temporal-difference (TD) learning moves the value of this state along "
        "it, so that it shrinks.",
    ),
    Term(
        name="weighted softmax TD",
        pattern=r"(?:weighted )?softmax TD|TD rules?",
        text="The learning rule that the papers find in such transformers: each layer corrects the value of a state "
        "by the TD errors of states that attention takes for similar. Two forms are fitted here. With one step size a "
        "layer, as in theta*, it keeps the discount of the tasks: the TD iterate is of this form. With three free "
        "weights a layer (on reward, next value and own value) it may solve for another discount: the shares of "
        "updates that are explained, and the rule that is named, are of this form.",
    ),
    Term(
        name="theta*",
        pattern=r"theta\*",
        text="The weights, written down by hand, with which the transformer carries out softmax TD exactly. Trained "
        "weights are compared with them.",
    ),
    Term(
        name="effective discount",
        pattern=r"effective discounts?",
        text="How much the next state's value counts in the update that the model makes. In correct TD it is the "
        "task's own discount, gamma.",
    ),
    Term(
        name="kernel diagonality",
        pattern=r"[Kk]ernel diagonality|kernel diagonals?|kernel",
        text="The kernel says which states attention takes for similar. It is diagonal where a state attends to itself "
        "alone, so that values of different states do not mix.",
    ),
    Term(
        name="NEU",
        pattern=r"NEU",
        text="Squared norm of the expected update: how much TD would still change on average. 0 means that it has "
        "converged.",
    ),
    Term(
        name="costate",
        pattern=r"[Cc]ostates?",
        text="How the training objective changes if one hidden state is nudged: a gradient, at one position and layer. "
        "For the objective `surrogate`, its average over rollouts is how the value changes with that state; for "
        "`reward` that average lacks what sampling another token would change.",
    ),
    Term(
        name="hop",
        pattern=r"hops?",
        text="One sampled token that credit crosses on its way back to an earlier state.",
    ),
    Term(
        name="signal-to-noise",
        pattern=r"[Ss]ignal-to-noise",
        text="Squared size of the mean costate over the variance of costates from rollout to rollout. At 0 the mean "
        "cannot be told from noise.",
    ),
    Term(
        name="locality",
        pattern=r"[Ll]ocality",
        text="Share of a costate that concerns only the token that is sampled next. The rest came back from later "
        "tokens.",
    ),
    Term(
        name="headroom",
        pattern=r"[Hh]eadroom",
        text="How much reward could be gained by sampling more often what the model already does best.",
    ),
    Term(
        name="impact",
        pattern=r"[Ii]mpact|signal x headroom|the score",
        text="Signal times headroom: the score that ranks checkpoints by how much RL from there should gain.",
    ),
    Term(
        name="regret",
        pattern=r"[Rr]egrets?",
        text="By how much a chosen checkpoint falls short of the best one, in gain or in reward after RL.",
    ),
)
"""In the order in which a reader needs them."""

_ANY = re.compile(
    "|".join(rf"(?P<t{k}>(?<![\w-])(?:{term.pattern})(?![\w-]))" for k, term in enumerate(TERMS))
)


def marked_terms(text: str) -> Markup:
    """A text with a link to the glossary at the first place of every term.

    Args:
        text: Plain; it is escaped.

    Example:
        >>> marked_terms("Is NEU < 1? NEU is small.")
        Markup('Is <a class="term" href="#term-neu">NEU</a> &lt; 1? NEU is small.')
    """
    parts, seen, end = [], set(), 0
    for found in _ANY.finditer(text):
        term = TERMS[int(str(found.lastgroup)[1:])]
        if term.name not in seen:
            seen.add(term.name)
            link = Markup('<a class="term" href="#{}">{}</a>').format(term.anchor, found.group())
            parts += [escape(text[end : found.start()]), link]
            end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


def used_terms(page: str) -> list[Term]:
    """The terms that a page uses, in the order of the glossary.

    Args:
        page: HTML; drawings and attributes do not count.
    """
    text = Markup(re.sub(r"<svg\b.*?</svg>", " ", page, flags=re.S)).striptags()
    return [term for term in TERMS if re.search(rf"(?<![\w-])(?:{term.pattern})(?![\w-])", text)]
