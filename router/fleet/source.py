"""Where one rank's cache events come from, and what else its index needs to know. Values only."""

import msgspec

from prefix_index.layout import Layout
from wire.ids import Target


class RankSource(msgspec.Struct, frozen=True, kw_only=True):
    """One rank as the event feed follows it; another value means another source."""

    target: Target
    #: Namespace of its blocks: the base model's name.
    model: str
    #: Address of its PUB socket.
    endpoint: str
    #: Address of its replay socket; None where it has none.
    replay_endpoint: str | None = None
    topic: str = ""
    #: The engine connects to this address, so the router binds it.
    binds: bool = False
    #: Where its sidecar gives a snapshot of the rank; None without a sidecar.
    snapshot_url: str | None = None
    #: Name of the Redis stream to which its sidecar publishes; None where its sockets are read.
    redis_stream: str | None = None
    #: Its cache is keyed by pairs of tokens.
    is_bigram: bool = False
    #: Host domain and shared pools that it reads.
    host: str | None = None
    pools: tuple[str, ...] = ()
    #: Cache groups as its worker declares them.
    layout: Layout | None = None
