"""What people see of a result: figures, sentences and one self-contained page, all drawn from results alone."""

from valuelens.analyses.report._arc_figures import gain_arc_figure as gain_arc_figure
from valuelens.analyses.report._arc_figures import reward_arc_figure as reward_arc_figure
from valuelens.analyses.report._arc_figures import score_arc_figure as score_arc_figure
from valuelens.analyses.report._costate_figures import rollouts_figure as rollouts_figure
from valuelens.analyses.report._figures import Picture as Picture
from valuelens.analyses.report._figures import pictures as pictures
from valuelens.analyses.report._figures import save_figures as save_figures
from valuelens.analyses.report._hop_figures import hop_map_figure as hop_map_figure
from valuelens.analyses.report._hop_figures import hop_share_figure as hop_share_figure
from valuelens.analyses.report._identify_figures import rule_error_figure as rule_error_figure
from valuelens.analyses.report._numbers import readable as readable
from valuelens.analyses.report._opaque_figures import decoding_figure as decoding_figure
from valuelens.analyses.report._opaque_figures import head_figure as head_figure
from valuelens.analyses.report._opaque_figures import patch_figure as patch_figure
from valuelens.analyses.report._page import write_report as write_report
from valuelens.analyses.report._pdf import require_pdf as require_pdf
from valuelens.analyses.report._pdf import write_pdf as write_pdf
from valuelens.analyses.report._prediction_figures import forest_figure as forest_figure
from valuelens.analyses.report._prediction_figures import prediction_figure as prediction_figure
from valuelens.analyses.report._sentences import sentence as sentence
from valuelens.analyses.report._value_figures import value_lens_figure as value_lens_figure
