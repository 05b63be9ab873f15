"""What is known of one rank that requests can be sent to."""

import msgspec

from router.fleet.role import Bootstrap, Engine, Role
from router.fleet.tiers import DEFAULT_LINKS, TierLinks
from wire.ids import Target


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One data-parallel rank as discovery and probes describe it; a new value replaces the old one whole."""

    #: Worker and rank. Only ranks the worker said it serves ever become facts.
    target: Target
    #: Base URL of the worker, without the rank.
    url: str
    #: Names of the models served, as clients ask for them.
    models: tuple[str, ...]
    #: Answers its probes.
    healthy: bool = True
    #: Asked to finish: keeps what it runs, gets nothing new.
    draining: bool = False
    #: Tokens in one block of its cache events; None while unknown.
    block_tokens: int | None = None
    #: Tokens its KV cache holds; None while unknown.
    capacity_tokens: int | None = None
    #: Its cache is keyed by pairs of tokens (EAGLE), so that prompts are looked up in a namespace of their own.
    is_bigram: bool = False
    #: How fast it reads the tiers behind its device cache.
    links: TierLinks = DEFAULT_LINKS
    #: What it does of a request.
    role: Role = Role.AGGREGATED
    #: Whose ways it has; None while unknown.
    engine: Engine | None = None
    #: Ranks of its worker.
    dp_size: int = 1
    #: Where decode ranks find it; only SGLang's prefill ranks have it.
    bootstrap: Bootstrap | None = None
    #: Part of the network that it stands in; transfers across parts take longer.
    zone: str | None = None

    def accepts_requests(self) -> bool:
        """The one predicate of availability; every policy and explicit choice goes through it."""
        return self.healthy and not self.draining
