"""One measured figure as a row: value, spread, the reference measured in the same run, the aim. Pure."""

from collections.abc import Sequence
from statistics import median

import msgspec


class Aim(msgspec.Struct, frozen=True):
    """What a figure is to be; of the ratio to its reference where `of_ratio`."""

    #: One of the two.
    at_most: float | None = None
    at_least: float | None = None
    of_ratio: bool = False

    def is_met(self, value: float) -> bool:
        """Whether a value is within it."""
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A figure."""

    what: str
    value: float
    unit: str
    #: Extremes over the repeats.
    spread: tuple[float, float] | None = None
    #: Name of the reference, and its figure in the same unit.
    reference: str | None = None
    reference_value: float | None = None
    #: How many times better than the reference; above 1 in our favour.
    ratio: float | None = None
    aim: Aim | None = None
    #: Whether the aim is met; None without an aim, or where its reference could not be measured.
    met: bool | None = None
    #: Among the few that the front page shows.
    is_headline: bool = False


def make_row(
    what: str, values: float | Sequence[float], unit: str, *, reference: str | None = None,
    reference_value: float | None = None, more_is_better: bool = False, aim: Aim | None = None, headline: bool = False,
    gives_ratio: bool = True,
) -> Row:  # fmt: skip
    """A row whose value is the median of `values`.

    Args:
        what: The figure in words.
        values: One for each repeat, or the figure itself.
        unit: Of the values.
        reference: Name of what it stands beside.
        reference_value: Its figure; None where it could not be measured.
        more_is_better: A rate rather than a cost.
        aim: What the figure is to be.
        headline: For the front page.
        gives_ratio: Whether the reference can be divided by: not where the figure is a difference.
    """
    taken = sorted(values) if isinstance(values, Sequence) else [values]
    value = median(taken)
    ratio = None
    if reference_value and value and gives_ratio:
        ratio = value / reference_value if more_is_better else reference_value / value
    judged = ratio if aim is not None and aim.of_ratio else value
    return Row(
        what=what,
        value=value,
        unit=unit,
        spread=(taken[0], taken[-1]) if len(taken) > 1 else None,
        reference=reference if reference_value is not None else None,
        reference_value=reference_value,
        ratio=ratio,
        aim=aim,
        met=None if aim is None or judged is None else aim.is_met(judged),
        is_headline=headline,
    )
