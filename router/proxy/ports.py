"""What the data plane needs of the other parts, and nothing more. The composition root fills these in."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from prefix_index import BlockChain
from prefix_index.trust import Trust
from router.access.gate import KEY_HEADERS
from router.access.tenants import Tenancy
from router.errors import UpstreamUnreachableError
from router.fleet.agreement import Agreement
from router.fleet.tiers import ReuseOption
from router.lookout import Lookout
from router.metrics import RouterMetrics
from router.placement.placer import Placer
from router.prompt import PromptCatalogue
from router.prompt.conversion_choice import ConversionChoice
from router.proxy.admit import Admission
from router.proxy.bounds import Bounds
from router.proxy.converted import make_choice
from router.proxy.headers import Headers
from router.proxy.kept import ResponseChains
from router.proxy.known_chats import KnownChats
from router.proxy.legs.parts import SendingParts, make_sending
from router.proxy.prediction import Evidence
from router.proxy.upstream import Upstream
from router.sessions.fingerprint import Fingerprints
from router.tracing import Tracing
from wire.ids import Target, WorkerId


class ReusePort(Protocol):
    """What ranks hold, and how that changes."""

    def find_reuse(self, chains: tuple[BlockChain, ...]) -> dict[Target, int]:
        """Tokens each rank can be credited with."""

    def find_options(
        self, plain: BlockChain, pairs: BlockChain | None, reuse: dict[Target, int]
    ) -> dict[Target, tuple[ReuseOption, ...]]:
        """Ways to serve a prompt on ranks of which more than the device cache counts."""

    def correct(self, target: Target, chain: BlockChain, cached_tokens: int) -> None:
        """An engine's count settles what is believed of groups that its events do not tell of."""

    def has_beliefs(self, target: Target) -> bool:
        """Whether a rank's credit rests on such groups."""

    def find_trust(self, target: Target) -> Trust:
        """How far a rank's credit can be believed."""

    def find_position(self, target: Target) -> int:
        """Number of the rank's next change."""

    def expect_blocks(self, target: Target, new_blocks: int, position: int) -> None:
        """A rank computed full blocks since its change `position`: it must tell of some."""

    def find_evidence(self, target: Target, position: int, until_s: float) -> Evidence:
        """What changed from there on."""


class FleetPort(Protocol):
    """Addresses of workers, and word of those that cannot be reached."""

    def find_url(self, target: Target) -> str | None:
        """Base URL of a rank's worker."""

    def find_ranks(self, worker: WorkerId) -> frozenset[Target]:
        """Every rank of a worker."""

    def count_standings(self) -> Mapping[str, int]:
        """Workers by how they stand, in the words of `GET /v1/workers`; words of none left out."""

    def find_key(self, worker: WorkerId) -> bytes | None:
        """Value of the `authorization` line that a worker asks for; None where it asks for none."""

    def report_unreachable(self, worker: WorkerId) -> None:
        """A worker did not accept a connection."""

    def count_placed(self, worker: WorkerId) -> None:
        """A request was placed on one of a worker's ranks."""


def find_address(fleet: FleetPort, target: Target) -> str:
    """Base URL of a rank's worker, which may have left since it was chosen.

    Raises:
        UpstreamUnreachableError: It has.
    """
    url = fleet.find_url(target)
    if url is None:
        raise UpstreamUnreachableError(f"worker {target.worker} left the fleet")
    return url


class ProxyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the data plane."""

    body_bytes: int
    first_byte_s: float
    idle_s: float
    #: Longest from the whole request to the end of its answer.
    request_s: float = 3_600.0
    #: Longest answer that is not streamed.
    answer_bytes: int = 256 << 20
    #: What a request may ask for at most.
    bounds: Bounds = Bounds()


class ProxyParts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a request passes through."""

    placer: Placer
    reuse: ReusePort
    fleet: FleetPort
    prompts: PromptCatalogue
    upstream: Upstream
    admission: Admission
    metrics: RouterMetrics
    limits: ProxyLimits
    #: Seconds of all that is placed and timed.
    clock: Callable[[], float] = time.monotonic
    #: Rooms, retries and limits of legs.
    sending: SendingParts = msgspec.field(default_factory=make_sending)
    #: Sees that nothing takes longer than it may.
    lookout: Lookout = msgspec.field(default_factory=Lookout)
    #: Makes spans of calls; None where tracing is off.
    tracing: Tracing | None = None
    #: What keeps tenants apart.
    tenancy: Tenancy = msgspec.field(default_factory=lambda: Tenancy(None))
    #: Whether lines with clients' keys go on to the workers.
    forwards_keys: bool = True
    #: Whether predictions and answers agree, a rank.
    agreement: Agreement = msgspec.field(default_factory=Agreement)
    #: Conversations whose turns name the answer before.
    chains: ResponseChains = msgspec.field(default_factory=ResponseChains)
    #: Conversations of requests that name none.
    fingerprints: Fingerprints = msgspec.field(default_factory=Fingerprints)
    #: Paths that go to workers as they are, with all that is below them.
    forwarded: tuple[str, ...] = ()
    #: Whether the router answers a path itself, beside those of the data plane.
    has_own_route: Callable[[str], bool] = lambda _path: False
    #: Chats that were made of such bodies.
    chats: KnownChats = msgspec.field(default_factory=KnownChats)
    #: What engines make of bodies that they turn into chats.
    conversions: ConversionChoice = msgspec.field(default_factory=make_choice)

    def keys_kept(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Lines of a call, without its key where that ends here."""
        if self.forwards_keys:
            return list(headers)
        return [line for line in headers if line[0] not in KEY_HEADERS]
