"""Plates on opaque models."""

from matplotlib.figure import Figure

from valuelens.analyses._result import Result
from valuelens.analyses.report._opaque_figures import QUANTITIES, decoding_figure, head_figure, patch_figure
from valuelens.analyses.report._plate import Plate, one
from valuelens.analyses.report._style import blank


def _decoding(result: Result) -> Figure:
    figure = blank(9.2, 4.6)
    axes = figure.subplots(2, 4, sharey=True)
    for ax, quantity in zip(axes.flat, QUANTITIES, strict=True):
        decoding_figure(ax, result, quantity)
    for ax in axes[:, 0]:
        ax.set_ylabel("R^2, held-out contexts")
    for ax in axes[-1]:
        ax.set_xlabel("layer")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


OPAQUE = {
    "opaque_decoding": Plate(
        section="opaque",
        needs=("decodability", "selectivity"),
        draw=_decoding,
        caption="How well a linear probe decodes, layer by layer, what weighted softmax TD with one step size would "
        "have to keep, and true values; emb. is the stream before the first block, vl the iterate that the training "
        "contexts chose. Only what rises above the untrained network says that something was computed. Bars are 95 % "
        "intervals over tasks.",
        says=("opaque_reading", "decodability"),
    ),
    "opaque_patches": Plate(
        section="opaque",
        needs=("patch_responses", "patch_response"),
        draw=one(patch_figure, 4.6, width=4.6),
        caption="Changes of the returned values when the decoded value of one column is moved by a standard deviation: "
        "on the dashed line they are what TD predicts, on the horizontal nothing happens. Larger ones are drawn at the "
        "edge.",
        says=("patch_response",),
    ),
    "opaque_heads": Plate(
        section="opaque",
        needs=("head_agreement",),
        draw=one(head_figure, 3.9),
        caption="Attention on transitions that every head shares with the kernel of softmax TD (1 is the same), asked "
        "with the column's own state or with its successor's, whichever fits better on half of the tasks; measured on "
        "the other half. Bars are 95 % intervals over tasks.",
        says=("head_agreement",),
    ),
}
