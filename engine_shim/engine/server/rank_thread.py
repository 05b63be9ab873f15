"""One thread a data-parallel rank: steps its engine while there is work, sleeps while there is none.

Takes commands from the event loop, gives signals back in one batch a step, after the step's events
were published. The engine is touched by this thread alone. A step that raises fails the rank's
requests and puts a fresh engine in place; the process goes on serving.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

import msgspec

from engine_shim.engine.admission.outcome import TokenOutput
from engine_shim.engine.admission.request import EngineRequest, Refusal
from engine_shim.engine.cache.pages import PageCounts
from engine_shim.engine.engine import Engine
from engine_shim.engine.step_result import StepResult
from wire.events import Event
from wire.load import LoadReport

_log = logging.getLogger(__name__)

#: A busy rank's snapshot is at most this old, plus one step.
SNAPSHOT_PERIOD_S = 0.05


class Accepted(msgspec.Struct, frozen=True):
    """The engine took a request."""

    request_id: str


class Refused(msgspec.Struct, frozen=True):
    """The engine did not take a request."""

    request_id: str
    refusal: Refusal


class Failed(msgspec.Struct, frozen=True):
    """A request ended because the engine broke."""

    request_id: str
    message: str


Signal = Accepted | Refused | Failed | TokenOutput


class RankSnapshot(msgspec.Struct, frozen=True):
    """What a rank looked like after its last turn; replaced as a whole, so that any thread may read it."""

    load: LoadReport
    pages: PageCounts
    #: The engine's own sums since the process started.
    counters: dict[str, int]


class RankPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank thread calls; all of it runs on the rank's thread."""

    build_engine: Callable[[], Engine]
    #: Publishes the events of one step.
    publish: Callable[[tuple[Event, ...]], None]
    #: Hands signals to the event loop.
    deliver: Callable[[tuple[Signal, ...]], None]
    clock: Callable[[], float]


class _Submit(msgspec.Struct, frozen=True):
    request: EngineRequest


class _Abort(msgspec.Struct, frozen=True):
    request_id: str


class _Flush(msgspec.Struct, frozen=True):
    answer: "Future[bool]"


_Command = _Submit | _Abort | _Flush


class RankThread:
    """Owner of one rank's engine."""

    def __init__(self, dp_rank: int, ports: RankPorts) -> None:
        self.dp_rank = dp_rank
        self._ports = ports
        self._engine = ports.build_engine()
        self._earlier: dict[str, int] = {}
        self._live: set[str] = set()
        self._flushed: list[tuple[Future[bool], bool]] = []
        self._commands: deque[_Command] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        #: Why the rank takes nothing more; None while it serves. Guarded by `_wake`.
        self._ended: str | None = None
        self._thread = threading.Thread(target=self._serve, name=f"rank-{dp_rank}", daemon=True)
        #: Last known state; written by the rank's thread.
        self.snapshot = self._take_snapshot()
        self._snapshot_due_s = 0.0
        #: Times a step broke and the engine was replaced.
        self.failures = 0

    @property
    def is_alive(self) -> bool:
        """Whether the rank serves."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Publish that the cache is empty, then serve."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End after the step under way; False when that takes longer than `timeout_s`."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def submit(self, request: EngineRequest) -> None:
        """Ask the engine to take a request; `Accepted` or `Refused` follows."""
        self._send(_Submit(request))

    def abort(self, request_id: str) -> None:
        """End a request between steps; an unknown one is left alone."""
        self._send(_Abort(request_id))

    def flush(self) -> "Future[bool]":
        """Drop the cache; the answer is False while requests run."""
        answer: Future[bool] = Future()
        self._send(_Flush(answer))
        return answer

    def _send(self, command: _Command) -> None:
        with self._wake:
            if self._ended is None:
                self._commands.append(command)
                self._wake.notify()
                return
        self._turn_down(command, self._ended)

    def _serve(self) -> None:
        message = f"rank {self.dp_rank} has stopped"
        try:
            self._turn(())
            while (commands := self._wait_for_work()) is not None:
                self._turn(commands)
        except Exception as error:  # noqa: BLE001  (whoever waits for this rank must hear of it)
            _log.exception("rank=%d stopped", self.dp_rank)
            message = f"rank {self.dp_rank} has stopped: {error}"
        self._end(message)

    def _end(self, message: str) -> None:
        """Nobody may wait for a rank that has ended."""
        with self._wake:
            self._ended = message
            left = tuple(self._commands)
            self._commands.clear()
        self._fail_live(message)
        for command in left:
            self._turn_down(command, message)

    def _turn_down(self, command: _Command, message: str) -> None:
        match command:
            case _Submit(request):
                self._ports.deliver((Failed(request.request_id, message),))
            case _Flush(answer):
                answer.set_result(False)
            case _Abort():
                pass

    def _wait_for_work(self) -> tuple[_Command, ...] | None:
        """Commands that came in; empty when the engine has work anyway; None when it is time to end."""
        with self._wake:
            self._wake.wait_for(lambda: self._stopping or self._commands or self._engine.has_work)
            commands = tuple(self._commands)
            self._commands.clear()
        return None if self._stopping else commands

    def _turn(self, commands: tuple[_Command, ...]) -> None:
        """Carry out commands, then step once; each half hands over what it has to say."""
        try:
            self._hand_over(tuple(signal for command in commands for signal in self._carry_out(command)))
            result = self._engine.step(self._ports.clock())
        except Exception as error:  # noqa: BLE001  (whatever a forward raises must not end the rank)
            _log.exception("rank=%d step failed", self.dp_rank)
            self._replace_engine(f"the engine failed: {error}")
            return
        self._publish(result.events)
        self._refresh_snapshot(result)
        self._hand_over(result.outputs)
        self._answer_flushes()

    def _carry_out(self, command: _Command) -> tuple[Signal, ...]:
        match command:
            case _Submit(request):
                refusal = self._engine.submit(request)
                if refusal is not None:
                    return (Refused(request.request_id, refusal),)
                self._live.add(request.request_id)
                return (Accepted(request.request_id),)
            case _Abort(request_id):
                self._engine.abort(request_id)
                self._live.discard(request_id)
            case _Flush(answer):
                self._flushed.append((answer, self._engine.flush_cache()))
        return ()

    def _publish(self, events: tuple[Event, ...]) -> None:
        if events:
            self._ports.publish(events)

    def _hand_over(self, signals: tuple[Signal, ...]) -> None:
        ended = (signal.request_id for signal in signals if isinstance(signal, TokenOutput) and signal.finish_reason)
        self._live.difference_update(ended)
        if signals:
            self._ports.deliver(signals)

    def _replace_engine(self, message: str) -> None:
        """Start over with an empty cache, tell subscribers so, and fail what was running."""
        self.failures += 1
        self._earlier = self._sum_counters()
        self._engine = self._ports.build_engine()
        self._publish(self._engine.step(self._ports.clock()).events)
        self.snapshot = self._take_snapshot()
        self._fail_live(message)

    def _fail_live(self, message: str) -> None:
        failed = tuple(Failed(request_id, message) for request_id in sorted(self._live))
        self._live.clear()
        self._hand_over(failed)
        self._answer_flushes()

    def _answer_flushes(self) -> None:
        """Only now have the events of the flush been published."""
        for answer, flushed in self._flushed:
            answer.set_result(flushed)
        self._flushed.clear()

    def _refresh_snapshot(self, result: StepResult) -> None:
        """A load report matches every waiting prompt, so a busy rank makes one every `SNAPSHOT_PERIOD_S` at most."""
        ended = any(output.finish_reason for output in result.outputs)
        if ended or not self._engine.has_work or result.now_s >= self._snapshot_due_s:
            self.snapshot = self._take_snapshot()
            self._snapshot_due_s = result.now_s + SNAPSHOT_PERIOD_S

    def _take_snapshot(self) -> RankSnapshot:
        return RankSnapshot(self._engine.load(self._ports.clock()), self._engine.pages, self._sum_counters())

    def _sum_counters(self) -> dict[str, int]:
        now: dict[str, int] = msgspec.structs.asdict(self._engine.counters)
        return {name: value + self._earlier.get(name, 0) for name, value in now.items()}
