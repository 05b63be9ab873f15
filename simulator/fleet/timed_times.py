"""The engine model of the engine's own timed forward: the same formula, so that a real fleet of it can be foretold."""

from collections.abc import Sequence

from engine_shim.engine.admission.admission import PlannedRow
from engine_shim.engine.forward.timed import CostModel, RowSize
from simulator.fleet.times import StepTimes


class TimedTimes:
    """Takes what `TimedForward` sleeps."""

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs

    def measure(self, rows: Sequence[PlannedRow]) -> StepTimes:
        """See `EngineTimes`. Each further step attends to a token more for each row that decodes."""
        sizes = [_measure_row(row) for row in rows]
        decoding = sum(size.is_decoding for size in sizes)
        growth_s = decoding * self._costs.decode_context_token_s * self._costs.time_scale
        return StepTimes(self._costs.step_s(sizes), growth_s)


def _measure_row(row: PlannedRow) -> RowSize:
    start_token = row.sequence.computed_tokens
    return RowSize(row.end_token - start_token, start_token, row.samples)
