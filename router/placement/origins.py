"""Several routers before one fleet: whose word about load and homes counts.

Each router tells the others what it placed. Its words carry a stamp: a fencing token that grows with each start of that
router, and a number that grows with each word. A word that is not newer than the last one of its origin is passed over,
so that neither a late message nor a router that was taken for dead and replaced can bring old load back.
"""

import msgspec

from wire.ids import SessionId, Target

#: A router that said nothing for so long counts as gone, and its load with it.
PARTIAL_TTL_S = 30.0


class Stamp(msgspec.Struct, frozen=True, order=True):
    """When a word was said, by its origin's own count."""

    #: Grows with each start of the router.
    token: int
    #: Grows with each word.
    sequence: int


class RankPartial(msgspec.Struct, frozen=True, kw_only=True):
    """What one router has on one rank."""

    target: Target
    waiting_s: float = 0.0
    waiting_tokens: int = 0
    waiting_requests: int = 0
    decoding_requests: int = 0
    remaining_output_tokens: int = 0
    context_tokens: int = 0
    open_tokens: int = 0
    joint_output_tokens: int = 0
    joint_context_tokens: int = 0


class LedgerPartial(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one router has placed and is not done yet."""

    origin: str
    stamp: Stamp
    ranks: tuple[RankPartial, ...] = ()


class HomeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where a conversation lives, as the router that placed it says."""

    origin: str
    stamp: Stamp
    session: SessionId
    target: Target
    #: Seconds since it was used, for clocks that differ.
    age_s: float = 0.0
    #: Tokens it keeps there.
    tokens: int = 0


class Fence:
    """The newest stamp of each origin."""

    def __init__(self) -> None:
        self._newest: dict[str, Stamp] = {}
        #: Words passed over because they were not newer.
        self.refused = 0

    def admit(self, origin: str, stamp: Stamp) -> bool:
        """Whether the word counts; if so it is the newest from now on."""
        newest = self._newest.get(origin)
        if newest is not None and stamp <= newest:
            self.refused += 1
            return False
        self._newest[origin] = stamp
        return True
