"""The router as it runs, without its sockets: streams, index, sessions and placer, told the virtual time.

Takes frames of ranks and requests of the trace; gives the placer's instruction. Blocks are named by the trace's ids,
one id a block, so that the index counts in blocks; what it finds becomes tokens here.
"""

from array import array
from collections.abc import Sequence

from prefix_index.base import BlockChain
from prefix_index.choose import make_index
from prefix_index.hashing import block_hashes
from prefix_index.stream import RankStream
from router.fleet.rank import RankFacts
from router.placement.instructions import Instruction
from router.placement.placer import Placer, PlacerSettings
from router.placement.stimuli import (
    FirstToken,
    FleetChanged,
    LoadReported,
    Outcome,
    OutputProgressed,
    RequestArrived,
    RequestEnded,
)
from router.policy.base import Policy
from router.sessions.identity import find_session
from simulator.graph.request import BlockRequest
from wire.block_hash import namespace_seed
from wire.ids import RequestId, Target
from wire.load import LoadReport

MODEL = "simulated"
_NO_BLOCKS = array("I")


class RouterSide:
    """One router and what it knows of its fleet."""

    def __init__(
        self,
        targets: Sequence[Target],
        policy: Policy,
        *,
        block_tokens: int,
        capacity_tokens: int,
        seed: int,
        settings: PlacerSettings | None = None,
    ) -> None:
        self._block_tokens = block_tokens
        self._namespace = namespace_seed(MODEL)
        #: Last prompt of each session, and its chain.
        self._chains: dict[str | None, tuple[array[int], tuple[int, ...]]] = {}
        self.index = make_index()
        self._streams = {}
        for target in targets:
            self.index.attach(target, model=MODEL)
            self._streams[target] = RankStream(target, self.index, replay_available=False)
        self.placer = Placer(policy=policy, rng_seed=seed, settings=settings)
        facts = (
            RankFacts(
                target=target,
                url=f"http://{target.worker}",
                models=(MODEL,),
                block_tokens=block_tokens,
                capacity_tokens=capacity_tokens,
            )
            for target in targets
        )
        self.placer.handle(FleetChanged(now_s=0.0, ranks=tuple(facts)))

    def hear(self, target: Target, frames: Sequence[bytes], now_s: float) -> None:
        """A message of a rank's event socket, taken in as the router's feed does."""
        stream = self._streams[target]
        if not stream.on_live_run([frames], now_s).payloads:
            stream.on_live(frames, now_s)

    def report(self, target: Target, load: LoadReport, now_s: float) -> None:
        """A rank's answer about its load."""
        self.placer.handle(
            LoadReported(
                now_s=now_s,
                target=target,
                running_requests=load.running_requests,
                waiting_requests=load.waiting_requests,
                waiting_tokens=load.waiting_uncached_tokens,
                used_tokens=load.used_tokens,
                capacity_tokens=load.capacity_tokens,
            )
        )

    def place(self, request: BlockRequest, now_s: float, max_output_tokens: int | None = None) -> Instruction:
        """Where the request goes."""
        headers = {} if request.session is None else {"x-dovecote-session": request.session}
        if request.parent is not None:
            headers["x-dovecote-parent"] = request.parent
        hashes = self._find_hashes(request)
        # In units of blocks; a begun block at the end lets all full ones count.
        units = -(-request.prompt_tokens // self._block_tokens)
        found = self.index.find_reuse(BlockChain(1, hashes, units))
        arrival = RequestArrived(
            now_s=now_s,
            request_id=RequestId(request.request_id),
            model=MODEL,
            prompt_tokens=request.prompt_tokens,
            overlaps={target: blocks * self._block_tokens for target, blocks in found.items()},
            session=find_session(headers, {}).session,
            max_output_tokens=max_output_tokens,
            chain_hashes=hashes,
            chain_block_tokens=self._block_tokens,
        )
        (instruction,) = self.placer.handle(arrival)
        return instruction

    def _find_hashes(self, request: BlockRequest) -> tuple[int, ...]:
        """The prompt's chain; what it shares with the last one of its session is not hashed again."""
        before, known = self._chains.get(request.session, (_NO_BLOCKS, ()))
        shared = _count_shared(before, request.blocks)
        parent = known[shared - 1] if shared else self._namespace
        hashes = known[:shared] + tuple(block_hashes(request.blocks[shared:], 1, parent))
        if request.session is not None:
            self._chains[request.session] = request.blocks, hashes
        return hashes

    def see_first_token(self, request: BlockRequest, now_s: float) -> None:
        """The first token was streamed."""
        self.placer.handle(FirstToken(now_s=now_s, request_id=RequestId(request.request_id)))

    def see_progress(self, request: BlockRequest, output_tokens: int, now_s: float) -> None:
        """More of the answer was streamed."""
        stimulus = OutputProgressed(now_s=now_s, request_id=RequestId(request.request_id), output_tokens=output_tokens)
        self.placer.handle(stimulus)

    def see_end(self, request: BlockRequest, cached_tokens: int, output_tokens: int, now_s: float) -> None:
        """The answer is complete, with the engine's account of it."""
        self.placer.handle(
            RequestEnded(
                now_s=now_s,
                request_id=RequestId(request.request_id),
                outcome=Outcome.DONE,
                cached_tokens=cached_tokens,
                output_tokens=output_tokens,
            )
        )

    def check_settled(self) -> None:
        """Raise AssertionError where a load is still charged, or an invariant is broken."""
        self.placer.check_invariants()
        if len(self.placer.ledger):
            raise AssertionError(f"still charged at the end: {self.placer.ledger.open_requests()}")


def _count_shared(left: "array[int]", right: "array[int]") -> int:
    """Blocks that two prompts share from their start; an id stands for its whole prefix, so that it bisects."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[middle - 1] == right[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
