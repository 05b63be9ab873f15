"""What was seen of one worker, and what it means: values only."""

from enum import StrEnum

import msgspec

from router.control.facts import WorkerFacts
from router.control.loads import LoadSource


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    #: Requests are served, with less than there could be.
    WARNING = "warning"
    #: Requests are not served there, or go wrong.
    PROBLEM = "problem"


class Check(StrEnum):
    """What was looked at."""

    HEALTH = "health"
    FACTS = "facts"
    EVENTS = "events"
    REPLAY = "replay"
    PARITY = "parity"
    CLOCK = "clock"
    LOAD = "load"
    DISCOVERY = "discovery"


class Finding(msgspec.Struct, frozen=True):
    """One thing about one worker."""

    worker: str
    check: Check
    level: Level
    #: What is.
    says: str
    #: What to change; empty where nothing.
    change: str = ""


class RankSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one rank's event sockets."""

    dp_rank: int
    endpoint: str
    #: Its publisher answered as ZeroMQ publishers do.
    is_connected: bool
    #: Address of its replay socket; None where it has none.
    replay_endpoint: str | None = None
    #: The replay came to its end within the time.
    is_replayed: bool = False
    #: Batches of the replay, and those of them that could not be read in part or whole.
    batches: int = 0
    unreadable: int = 0
    #: First number of the replay; None where there was none.
    first_seq: int | None = None
    #: Numbers that lack between the first and the last.
    missing: int = 0
    #: Ranks that batches name and that are not this one.
    strangers: tuple[int, ...] = ()
    #: Sizes of blocks told.
    block_tokens: tuple[int, ...] = ()


class WorkerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one worker."""

    worker: str
    url: str
    #: Why `/health` does not answer well, in words; None where it does.
    health_problem: str | None = None
    #: Seconds that it took.
    health_s: float = 0.0
    facts: WorkerFacts | None = None
    #: Why it would get no requests, in words; None where nothing speaks against it.
    refused: str | None = None
    #: Why it would earn no cache credit before its sockets are looked at; None where it can.
    no_events: str | None = None
    #: Events are switched off in the configuration.
    is_switched_off: bool = False
    has_sidecar: bool = False
    ranks: tuple[RankSeen, ...] = ()
    #: What the comparison of ids gave, and why there was none.
    parity: str = "unknown"
    no_tokenizer: str | None = None
    #: How it tells its load; None where it does not.
    load: LoadSource | None = None
    #: It pushes its load as well.
    pushes_load: bool = False
    #: Seconds by which its clock is ahead of this machine's, as far as whole seconds tell; None where it does not say.
    clock_ahead_s: float | None = None
