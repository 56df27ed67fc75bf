"""Which questions are asked of which checkpoint, in an order that a small disk survives."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from valuelens.analyses._costate_run import RolloutSource, rollouts_asked
from valuelens.analyses._request import Progress
from valuelens.analyses.impact._config import ImpactConfig
from valuelens.analyses.impact._engine import Answer, Failure, Work, answers
from valuelens.analyses.impact._gain import GainConfig
from valuelens.analyses.impact._members import Member
from valuelens.analyses.impact._parts import Asked, gained, rewarded, scored
from valuelens.analyses.impact._workers import Workers
from valuelens.models import InputError
from valuelens.models.lm import corpus_of, evict

Reply = Answer | Failure


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """Where and in what order questions are answered; it changes no answer.

    Attributes:
        workers: Processes of this machine or of a cluster.
        evict: Finish one checkpoint after another, and remove its files from the hub's cache once it is done.
        cache: Folder of answers, which rankings may share, one after another: what is half written when one starts it
            takes for a killed one's. `cache/` of the result folder if none.
        warn: Called with what a user must know at once.
        ready: Called once the request is known to be sound, before the result folder is looked at.
    """

    workers: Workers = field(default_factory=Workers)
    evict: bool = False
    cache: Path | None = None
    warn: Callable[[str], None] | None = None
    ready: Callable[[], None] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Asker:
    """Asks the questions of a ranking and keeps their answers.

    Attributes:
        config: What is asked.
        execution: Where it is answered.
        cache: Folder of finished answers, if any.
        progress: Called as progress(what, done, total).
    """

    config: ImpactConfig
    execution: Execution
    cache: Path | None
    progress: Progress | None

    def replies(self, asked: Sequence[Asked], *, runs: int) -> list[Reply]:
        """Scores of all checkpoints, and the RL runs of those that could be scored.

        Args:
            asked: The checkpoints with their rollouts.
            runs: RL runs from each, without those with credit cut.

        Raises:
            InputError: Architectures or vocabularies differ.
        """
        ranges = self._ranges(asked)
        asked = [replace(each, reward_range=ranges) for each in asked]
        found: list[Reply] = []
        todo = len(asked) * (1 + runs * (2 if self.config.cut else 1))
        for group in [[each] for each in asked] if self.execution.evict else [list(asked)]:
            found += self._answers([self._score(each) for each in group], len(found), todo)
            _check_alike(found)
            usable = {each.work.checkpoint for each in found if isinstance(each, Answer)}
            sound = [each for each in group if each.member.name in usable]
            found += self._answers(
                [work for each in sound for work in self._gains(each, runs)], len(found), todo
            )
            for each in group:
                if self.execution.evict and not each.member.local:
                    evict(each.member.source, each.member.revision)
        return found

    def _ranges(self, asked: Sequence[Asked]) -> tuple[float, float] | None:
        """Least and largest reward of all rollouts, where no task declares them."""
        if asked[0].source.task is not None:
            return None
        works = [
            _work(each, "rewards", {**_source(each.source), **asdict(each.loading)}, rewarded)
            for each in asked
        ]
        found = [each.payload for each in self._answers(works, 0, len(works)) if isinstance(each, Answer)]
        if not found:
            return None
        return min(each["low"] for each in found), max(each["high"] for each in found)

    def _score(self, asked: Asked) -> Work:
        config = self.config.score
        how = {
            **_source(asked.source),
            **asdict(asked.loading),
            "corpus": asked.corpus,
            "reward_range": asked.reward_range,
            "score": asdict(config),
        }
        return _work(asked, "score", how, scored, config)

    def _gains(self, asked: Asked, runs: int) -> Iterator[Work]:
        for rl_seed in range(self.config.seed, self.config.seed + runs):
            for cut in (False, True) if self.config.cut else (False,):
                config = GainConfig(
                    recipe=self.config.recipe,
                    rl_seed=rl_seed,
                    cut=cut,
                    max_completion_length=asked.source.generate.max_completion_length,
                    completion_ends=asked.source.generate.completion_ends,
                    sampling=asked.source.sampling,
                    seed=self.config.seed,
                )
                how = {
                    "rollouts": rollouts_asked(asked.source)["rollouts"],
                    **asdict(asked.loading),
                    "gain": _said(config),
                }
                yield _work(asked, "gain", how, gained, config)

    def _answers(self, works: Sequence[Work], before: int, total: int) -> list[Reply]:
        def told(what: str, done: int, _: int) -> None:
            if self.progress:
                self.progress(what, before + done, total)

        return answers(
            works,
            cache=self.cache,
            workers=self.execution.workers,
            progress=told,
            warn=self.execution.warn,
        )


def asked_of(
    found: Sequence[Member],
    sources: Sequence[RolloutSource],
    hashes: Mapping[str, str],
    config: ImpactConfig,
) -> list[Asked]:
    """Checkpoints with their rollouts and, for series of ours, the corpus they were pretrained on.

    Args:
        found: Checkpoints.
        sources: Their rollouts, in the same order.
        hashes: Of their files, by name.
        config: How they are loaded.
    """
    return [
        Asked(
            member=member,
            sha256=hashes[member.name],
            loading=config.loading,
            source=source,
            corpus=_corpus(member),
        )
        for member, source in zip(found, sources, strict=True)
    ]


def _corpus(member: Member) -> Mapping[str, Any] | None:
    corpus = corpus_of(Path(member.source)) if member.local else None
    return None if corpus is None else corpus.model_dump(mode="json")


def _source(source: RolloutSource) -> dict[str, Any]:
    return dict(rollouts_asked(source))


def _said(config: GainConfig) -> dict[str, Any]:
    """What decides a gain; that the task says whether completions end goes without saying."""
    said = asdict(config)
    if config.completion_ends == "auto":
        said.pop("completion_ends")
    return said


def _work(
    asked: Asked, question: str, how: Mapping[str, Any], function: Callable[..., Any], *more: object
) -> Work:
    return Work(
        checkpoint=asked.member.name,
        sha256=asked.sha256,
        question=question,
        how=how,
        function=function,
        arguments=(asked, *more),
    )


def _check_alike(found: Sequence[Reply]) -> None:
    """Scores of different architectures or vocabularies are not on one scale."""
    scores = [each for each in found if isinstance(each, Answer) and each.work.question == "score"]
    for each in scores[1:]:
        first, other = scores[0].payload["architecture"], each.payload["architecture"]
        for key, value in first.items():
            if other[key] != value:
                must = f"checkpoints of a ranking must have one architecture and vocabulary: {key} {value}"
                where = f"{each.work.checkpoint} beside {scores[0].work.checkpoint}"
                raise InputError(must, f"found {other[key]}", where)
