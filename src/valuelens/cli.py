"""The command line. It parses, calls the library and prints; heavy imports wait until a verb runs."""

import errno
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from valuelens._complete import PRECISIONS, named, questions
from valuelens._complete import models as hub_models
from valuelens._help import SETTINGS, Front, Verb
from valuelens._interrupt import Interrupted, command
from valuelens._lm_cli import costates, impact, pretrain_lm
from valuelens._mistyped import mistyped
from valuelens._options import (
    Device,
    Jobs,
    Json,
    MistypedError,
    Out,
    Overwrite,
    Quiet,
    RequiredOut,
    Seed,
    choice,
    emit,
    setting,
)
from valuelens._terminal import hushed, say, say_where

_REACH = "files and folders must be within reach"
_ROOM = "the disk must have room"
_REFUSED = {
    **{errno.EACCES: _REACH, errno.EPERM: _REACH, errno.EROFS: _REACH},
    **{errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM},
    errno.ENAMETOOLONG: "names of files must be short enough for the disk",
}
"""What must hold where the system refuses a file: whichever call it was, that is no bug of ours."""

app = typer.Typer(
    name="valuelens",
    cls=Front,
    context_settings=SETTINGS,
    help="Mechanistic interpretability for transformers trained with reinforcement learning.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _front(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    if version:
        from valuelens import __version__

        print(f"valuelens {__version__}")  # noqa: T201
        raise typer.Exit


@app.command(cls=Verb, short_help="Train in-context value learners by RL.")
def pretrain(
    out: RequiredOut,
    env: Annotated[
        str | None,
        setting(
            "--env", "boyan, loop, garnet, cartpole, or FILE.safetensors with P, r, p0 and features.", "boyan"
        ),
    ] = None,
    num_states: Annotated[int | None, setting("--num-states", "States of a chain.", "10")] = None,
    features: Annotated[
        str | None, setting("--features", "sphere, uniform or one-hot, redrawn for each task.", "sphere")
    ] = None,
    feature_dim: Annotated[
        int | None, setting("--feature-dim", "Feature dimension; the number of states if one-hot.", "4")
    ] = None,
    representable: Annotated[
        bool | None, typer.Option("--representable", help="Make values linear in the features.")
    ] = None,
    context_length: Annotated[
        int | None, setting("--context-length", "Transitions in a context.", "30")
    ] = None,
    gamma: Annotated[float | None, setting("--gamma", "Discount in [0, 1).", "0.5")] = None,
    arch: Annotated[str | None, setting("--arch", "tsm, dual, linear or transformer.", "tsm")] = None,
    weights: Annotated[
        str | None, setting("--weights", "restricted, full or factored (tsm, dual, linear).", "restricted")
    ] = None,
    num_layers: Annotated[
        int | None, setting("--num-layers", "Layers.", "10; 3 for linear, 4 for transformer")
    ] = None,
    tied: Annotated[
        bool | None,
        typer.Option("--tied/--untied", help="Share parameters over layers.", show_default="tied"),
    ] = None,
    num_heads: Annotated[int | None, setting("--num-heads", "Heads (transformer).", "4")] = None,
    d_model: Annotated[int | None, setting("--d-model", "Width (transformer).", "64")] = None,
    causal: Annotated[bool | None, typer.Option("--causal", help="Causal attention (transformer).")] = None,
    positions: Annotated[
        bool | None,
        typer.Option(
            "--positions/--no-positions",
            help="Learned positions (transformer); without them it is the set-only control.",
            show_default="positions",
        ),
    ] = None,
    normalization: Annotated[
        str | None, setting("--normalization", "layer or rms (transformer).", "layer")
    ] = None,
    loss: Annotated[str | None, setting("--loss", "td, neu, monte-carlo or true-value.", "td")] = None,
    steps: Annotated[int | None, setting("--steps", "Optimiser steps.", "2000")] = None,
    batch_size: Annotated[int | None, setting("--batch-size", "Fresh tasks a step.", "64")] = None,
    learning_rate: Annotated[
        float | None, setting("--learning-rate", "Of Adam.", "0.01; 0.001 for transformer")
    ] = None,
    clip_norm: Annotated[float | None, setting("--clip-norm", "Largest gradient norm.", "1.0")] = None,
    num_checkpoints: Annotated[
        int | None, setting("--num-checkpoints", "Log-spaced checkpoints.", "20")
    ] = None,
    dtype: Annotated[
        str | None, setting("--dtype", "float32 or float64.", "float32", named(PRECISIONS))
    ] = None,
    num_seeds: Annotated[int, typer.Option("--num-seeds", help="Models to train: seed, seed+1, ...")] = 1,
    seed: Seed = 0,
    device: Device = "cpu",
    jobs: Jobs = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """RL-pretrain in-context value learners on random Markov reward processes."""
    given = {key: value for key, value in locals().items() if value is not None}
    with hushed(quiet=quiet):
        from valuelens import _verbs

        summary = _verbs.pretrain(given, progress=not (quiet or as_json))
    emit(summary, _verbs.pretrain_lines(summary), as_json=as_json)


@app.command(cls=Verb, short_help="Ask a checkpoint or a run every in-context-RL question.")
def analyze(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="CKPT_OR_RUN",
            help="Checkpoint or run folder, also of InContextTD; with --adapter, whatever that loads.",
        ),
    ] = None,
    only: Annotated[
        str, choice("--only", "Questions, separated by commas; all if empty (see --list).", questions)
    ] = "",
    list_: Annotated[
        bool, typer.Option("--list", help="List what --only takes, each with its question, and exit.")
    ] = False,
    adapter: Annotated[
        str,
        typer.Option(
            "--adapter",
            metavar="package.module:Name",
            help="Identify your own network: an importable name, called with CKPT_OR_RUN, that returns a Network.",
        ),
    ] = "",
    full: Annotated[
        bool, typer.Option("--full", help="On a run: every question on every checkpoint.")
    ] = False,
    num_tasks: Annotated[int, typer.Option("--num-tasks", help="Evaluation tasks.", min=2)] = 256,
    dtype: Annotated[
        str, choice("--dtype", "Precision of the measurements: float64 or float32.", named(PRECISIONS))
    ] = "float64",
    seed: Seed = 0,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            help="cpu alone: models of this size are measured there.",
            autocompletion=named(("cpu",)),
        ),
    ] = "cpu",
    jobs: Annotated[int, typer.Option("--jobs", help="Processes; worth it for long runs.", min=1)] = 1,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Answer every in-context-RL question on a checkpoint, or on a whole run (then also emergence).

    With --adapter: identify the algorithm of any network.
    """
    given = {key: value for key, value in locals().items() if value is not None}
    with hushed(quiet=quiet):
        from valuelens import _tables, _verbs

        result = None if list_ else _verbs.analyze(given, progress=not (quiet or as_json))
    if result is None:
        emit({"questions": _verbs.questions()}, _verbs.question_lines(), as_json=as_json)
        return
    emit(result.summary(), _tables.result_lines(result, quiet=quiet), as_json=as_json)
    say_where(out, quiet=quiet or as_json)
    if (said := _verbs.imported(result)) and not quiet:
        say(said)
    if lost := _verbs.unusable_inputs(result):
        say(f"skipped as unusable: {'; '.join(lost)}")
        raise typer.Exit(3)


app.command("pretrain-lm", cls=Verb, short_help="Pretrain a small language model: a series of checkpoints.")(
    pretrain_lm
)
app.command(cls=Verb, short_help="Take the value signal of an RL update out of a language model.")(costates)
app.command(cls=Verb, short_help="Rank checkpoints: from which should RL start?")(impact)


@app.command(cls=Verb, short_help="Write one HTML page of any results.")
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Result folders, side by side.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.html",
            help="Where to write it; folders on the way are made.",
            show_default="DIR/report.html; of several, comparison.html",
        ),
    ] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="A PDF beside it, complete; takes a minute or more.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write one self-contained HTML report of any results."""
    with hushed(quiet=quiet):
        from valuelens import _verbs

        written = _verbs.report(folders, out, pdf=pdf, progress=not (quiet or as_json))
    summary = dict(zip(("report", "pdf"), map(str, written), strict=False))
    emit(summary, [f"The report is at {path}" for path in written], as_json=as_json)


@app.command(cls=Verb, short_help="Train, analyse and report small models: three minutes.")
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for runs, results and report.")] = Path("demo"),
    seed: Seed = 0,
    jobs: Jobs = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train two in-context learners and a language model, analyse and report them: three minutes on two cores."""
    with hushed(quiet=quiet):
        from valuelens import _verbs

        summary = _verbs.demo(out, seed=seed, jobs=jobs, overwrite=overwrite, progress=not (quiet or as_json))
    emit(summary, [*summary["verdicts"].values(), f"The report is at {summary['report']}"], as_json=as_json)


@app.command(cls=Verb, short_help="Does everything work here? Can this model be used?")
def doctor(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="MODEL", help="A checkpoint to try.", autocompletion=hub_models),
    ] = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only what is not ok.")] = False,
) -> None:
    """Say whether everything needed works here; exit 2 if something needed is broken."""
    with hushed(quiet=quiet):
        from valuelens import _doctor

        checks = _doctor.checks(model, progress=not (quiet or as_json))
    shown = [check for check in checks if not (quiet and check.state == "ok")]
    emit({"checks": [check.plain() for check in checks]}, [check.line() for check in shown], as_json=as_json)
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(2)


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 2 bad input, 3 partly unusable, 130 interrupted, 1 a bug (traceback)."""
    try:
        code = app(standalone_mode=False)
    except TyperException as error:
        _fail(mistyped(error, _verb_names(), sys.argv[1:]))
    except MistypedError as error:
        _fail(str(error))
    except Interrupted as stop:
        say(str(stop))
        sys.exit(130)
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _REFUSED:
            _fail(_refused(error))
        from valuelens.models import InputError  # costs torch, which --help and a mistyped option do not need

        if not isinstance(error, InputError):
            raise
        _fail(str(error))
    if code == 130:
        say(f"interrupted; nothing is left half-written; to go on: {command(sys.argv)}")
    sys.exit(code or 0)


def _verb_names() -> list[str]:
    return [each.name or each.callback.__name__ for each in app.registered_commands if each.callback]


def _refused(error: OSError) -> str:
    where = error.filename or "no file is named"
    return f"{_REFUSED[error.errno or 0]}; found {error.strerror}; {where}"


def _fail(message: str) -> NoReturn:
    say(f"error: {message}", "error")
    sys.exit(2)
