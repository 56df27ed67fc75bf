"""The result of a ranking: scores, rivals and gains of every checkpoint, and how they were judged."""

from dataclasses import replace

import pandas as pd

from valuelens.analyses._result import Result
from valuelens.analyses.impact._config import ScoreConfig
from valuelens.analyses.impact._findings import gain_findings, score_findings
from valuelens.analyses.impact._judgement import judgement
from valuelens.analyses.impact._outcomes import in_order, unscored
from valuelens.analyses.impact._series_findings import judgement_findings, recommended_findings
from valuelens.analyses.impact._verdict import impact_verdict
from valuelens.models import InputError


def impact_result(
    scores: pd.DataFrame, gains: pd.DataFrame, curves: pd.DataFrame, config: ScoreConfig, *, seed: int = 0
) -> Result:
    """Findings, verdict and tables; the provenance is whoever's who measured.

    Args:
        scores: Columns SCORES, a row for each checkpoint of one or several series.
        gains: Columns GAINS, a row for each RL run; it may be empty, and then only scores are told.
        curves: Columns CURVES; passed on.
        config: How checkpoints were scored.
        seed: Of resampling.

    Raises:
        InputError: There is no checkpoint, one stands there twice, or gains are of none of them.
    """
    if scores.empty:
        raise InputError("a ranking must have a checkpoint", "found none", "scores")
    twice = scores[scores.duplicated(["series", "checkpoint"])]
    if not twice.empty:
        found = f"found {twice['checkpoint'].iloc[0]} twice"
        raise InputError("names of checkpoints must differ within a series", found, "scores")
    scores = in_order(scores)
    judged = judgement(scores, gains, seed=seed)
    result = Result(
        kind="impact",
        findings=(
            *recommended_findings(judged, scores),
            *judgement_findings(judged),
            *score_findings(scores),
            *gain_findings(judged, scores),
        ),
        skipped=tuple(
            {"what": f"gains of {name}", "why": "it was not scored"} for name in unscored(scores, gains)
        ),
        tables={
            **{"scores": scores, "gains": gains, "curves": curves},
            **{"judgement": judged.table, "predictions": judged.predictions},
        },
    )
    return replace(result, verdict=impact_verdict(result, config))
