"""Whether what is predicted of a rank and what its engine answers agree as a rule. Pure.

Single differences have reasons (`Accuracy`). A run of them has one cause: events and look-ups name the same prompt
differently (pairs of tokens, a salt, an adapter), or belong to different caches. Only predictions that should have
been exact come in here.
Source: docs/faults.md A19.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from wire.ids import Target

#: Differences in a row that are no accident.
RUN = 8


class Disagreement(StrEnum):
    """What a run of differences has in common."""

    #: Nothing was predicted, and the engine found something each time.
    BLIND = "blind"
    #: Something was predicted, and the engine found nothing each time.
    GHOST = "ghost"
    #: Both say something, and never the same.
    OFF = "off"


class _Run(msgspec.Struct):
    length: int = 0
    #: Differences of the run by kind.
    kinds: dict[Disagreement, int] = {}
    #: What was told of the run; None while it is short.
    told: Disagreement | None = None


class Agreement:
    """Runs of differences by rank."""

    def __init__(self, *, run: int = RUN) -> None:
        self._needed = run
        self._runs: dict[Target, _Run] = {}

    def record(self, target: Target, *, predicted_tokens: int, actual_tokens: int) -> Disagreement | None:
        """One prediction and its answer; a disagreement when it has just become one.

        Both 0 says nothing: any two caches agree on a prompt that is new.
        """
        if predicted_tokens == actual_tokens:
            if actual_tokens:
                self._runs.pop(target, None)
            return None
        run = self._runs.setdefault(target, _Run())
        kind = _find_kind(predicted_tokens, actual_tokens)
        run.length += 1
        run.kinds[kind] = run.kinds.get(kind, 0) + 1
        if run.length < self._needed:
            return None
        before, run.told = run.told, kind if len(run.kinds) == 1 else Disagreement.OFF
        return None if run.told is before else run.told

    def find(self, target: Target) -> Disagreement | None:
        """The disagreement of a rank; None where there is none."""
        run = self._runs.get(target)
        return None if run is None else run.told

    def find_all(self) -> dict[Target, Disagreement]:
        """Every rank that disagrees."""
        return {target: run.told for target, run in self._runs.items() if run.told is not None}

    def forget(self, targets: Iterable[Target]) -> None:
        """Ranks whose engine is another one now."""
        for target in targets:
            self._runs.pop(target, None)


def _find_kind(predicted_tokens: int, actual_tokens: int) -> Disagreement:
    if not predicted_tokens:
        return Disagreement.BLIND
    return Disagreement.OFF if actual_tokens else Disagreement.GHOST
