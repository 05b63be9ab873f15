"""Names of the things that are routed to and asked for."""

from typing import NewType

import msgspec

#: URL-independent name of one engine process, unique in a fleet.
WorkerId = NewType("WorkerId", str)
#: Caller's or router's name for one request, unique while it runs.
RequestId = NewType("RequestId", str)
#: Client's name for a conversation.
SessionId = NewType("SessionId", str)


class Target(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """One place a request can run: a data-parallel rank of a worker.

    Also the holder of that rank's device cache.
    """

    #: Engine process.
    worker: WorkerId
    #: Data-parallel rank inside it, 0 where the engine has one rank.
    dp_rank: int

    def __str__(self) -> str:
        """`worker@rank`, for logs and reasons."""
        return f"{self.worker}@{self.dp_rank}"
