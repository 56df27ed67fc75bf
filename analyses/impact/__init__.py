"""From which checkpoint should RL start: scores of a series, rivals, realised gains, and how they are judged."""

from valuelens.analyses.impact._config import BETA as BETA
from valuelens.analyses.impact._config import RIVALS as RIVALS
from valuelens.analyses.impact._config import Headroom as Headroom
from valuelens.analyses.impact._config import Recipe as Recipe
from valuelens.analyses.impact._config import ScoreConfig as ScoreConfig
from valuelens.analyses.impact._config import Signal as Signal
from valuelens.analyses.impact._tables import CURVES as CURVES
from valuelens.analyses.impact._tables import GAINS as GAINS
from valuelens.analyses.impact._tables import SCORES as SCORES
