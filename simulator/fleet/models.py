"""The engine models by name, and the fleets of ranks that they make."""

from enum import StrEnum

from msgspec import Struct

from engine_shim.engine.spec import EngineSpec
from simulator.fleet.dynamo_times import DynamoTimes
from simulator.fleet.physical_times import PhysicalTimes
from simulator.fleet.rank import SimRank
from simulator.fleet.times import EngineTimes
from wire.ids import Target, WorkerId


class EngineName(StrEnum):
    """Engine models."""

    #: The simulated engine of ai-dynamo-runtime 1.6 with its vLLM scheduler.
    DYNAMO = "dynamo-1.6"
    #: Times from arithmetic and bytes of a model on a GPU.
    PHYSICAL = "physical"


class FleetPlan(Struct, frozen=True, kw_only=True):
    """The ranks of a simulated fleet, all alike."""

    engine: EngineName = EngineName.DYNAMO
    workers: int = 8
    #: Data-parallel ranks of a worker, each with a cache and a scheduler of its own.
    ranks: int = 1
    #: Pages of a rank's cache, a block each.
    cache_blocks: int = 8_192
    #: Divides every duration.
    speedup_ratio: float = 1.0
    max_running_requests: int = 256
    #: Tokens of a step, decode tokens included.
    batched_tokens: int = 8_192

    def targets(self) -> list[Target]:
        """Every rank's name, in order."""
        width = len(str(self.workers - 1))
        return [
            Target(WorkerId(f"worker-{worker:0{width}d}"), rank)
            for worker in range(self.workers)
            for rank in range(self.ranks)
        ]

    def make_spec(self, block_tokens: int) -> EngineSpec:
        """What every rank is made of, for a trace of such blocks."""
        return EngineSpec(
            page_tokens=block_tokens,
            id_tokens=block_tokens,
            pool_pages=self.cache_blocks,
            max_running_requests=self.max_running_requests,
            max_waiting_requests=1 << 20,
            prefill_chunk_tokens=self.batched_tokens,
            decode_shares_chunk=True,
            admits_tightly=True,
            max_model_len=1 << 30,
        )

    def make_ranks(self, block_tokens: int) -> list[SimRank]:
        """Ranks with empty caches."""
        spec = self.make_spec(block_tokens)
        return [SimRank(target, spec, self._make_times(spec)) for target in self.targets()]

    def _make_times(self, spec: EngineSpec) -> EngineTimes:
        if self.engine is EngineName.DYNAMO:
            return DynamoTimes(capacity_tokens=spec.capacity_tokens, speedup_ratio=self.speedup_ratio)
        return PhysicalTimes(speedup_ratio=self.speedup_ratio)
