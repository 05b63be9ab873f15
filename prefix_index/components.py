"""What a cache group needs before a boundary, so that the prompt can go on from there.

A component says from which token on a group's blocks must be resident up to a boundary. A registry gives the
component of a group by the kind that events or a layout name; more kinds are added by `with_kind`.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol


class Recovery(StrEnum):
    """How a boundary can be used although a group lacks what it needs there."""

    #: Not at all.
    NONE = "none"
    #: The last tokens are computed again.
    REBUILD = "rebuild"
    #: Tokens are run again from an earlier boundary that the group has.
    REPLAY = "replay"


class Component(Protocol):
    """The rule of one group."""

    @property
    def name(self) -> str:
        """A word for reports and metrics."""

    @property
    def recovery(self) -> Recovery:
        """What can be done where the rule does not hold."""

    def find_start(self, end_tokens: int) -> int:
        """First token that must be resident for the boundary at `end_tokens`; never falls as the boundary rises.

        Blocks are needed whole: a start inside a block needs all of it. 0 for every boundary makes the group a
        prefix group, whose blocks are worth something only with all before them.
        """


class Full:
    """Full attention: everything before the boundary."""

    name = "full"
    recovery = Recovery.NONE

    def find_start(self, end_tokens: int) -> int:  # noqa: ARG002
        """The prompt's start."""
        return 0


class Window:
    """Sliding-window attention: the last tokens before the boundary.

    The token at the boundary is in its own window, so one token less is read of those before it.
    """

    name = "swa"
    recovery = Recovery.REBUILD

    def __init__(self, window_tokens: int) -> None:
        self.window_tokens = window_tokens

    def find_start(self, end_tokens: int) -> int:
        """A window before the token at the boundary, itself included."""
        return max(0, end_tokens - self.window_tokens + 1)


class State:
    """A recurrent layer: a checkpoint exactly at the boundary, kept with the block that ends there."""

    name = "state"
    recovery = Recovery.REPLAY

    def find_start(self, end_tokens: int) -> int:
        """The last token: the block that ends at the boundary."""
        return max(0, end_tokens - 1)


#: Makes the component of a group from its window; None where the window makes no sense.
Factory = Callable[[int | None], Component | None]


def make_full(window_tokens: int | None) -> Component:  # noqa: ARG001
    """A full-attention group."""
    return Full()


def make_window(window_tokens: int | None) -> Component | None:
    """A sliding-window group; None without a window."""
    return None if window_tokens is None or window_tokens < 1 else Window(window_tokens)


def make_state(window_tokens: int | None) -> Component:  # noqa: ARG001
    """A recurrent group."""
    return State()


class Registry:
    """Kinds of groups that are known. Immutable."""

    def __init__(self, kinds: Mapping[str, Factory]) -> None:
        self._kinds = dict(kinds)

    def with_kind(self, kind: str, factory: Factory) -> "Registry":
        """This registry and one more kind."""
        return Registry(self._kinds | {kind: factory})

    def find(self, kind: str | None, group_idx: int | None, window_tokens: int | None) -> Component | None:
        """Component of a group; None where its rule is not known.

        A dialect without kinds has one group, or names it 0; any other group is not believed.
        """
        if kind is None:
            return Full() if group_idx in (None, 0) else None
        factory = self._kinds.get(kind)
        return None if factory is None else factory(window_tokens)


#: Kinds as vLLM names them in events, and short names for layouts.
STANDARD = Registry(
    {
        **dict.fromkeys(("full", "full_attention", "mla_attention", "sink_full_attention"), make_full),
        **dict.fromkeys(("swa", "sliding_window", "sliding_window_mla"), make_window),
        **dict.fromkeys(("state", "mamba"), make_state),
    }
)


def is_prefix(component: Component) -> bool:
    """True where a group's blocks count only with all before them."""
    return component.find_start(1 << 40) == 0
