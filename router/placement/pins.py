"""Hard pins: state that lives inside one engine process, so that a request which names it can go nowhere else.

A stored response (`previous_response_id`) or an opened session (SGLang's `/open_session`) is named by its engine. The
rank is remembered when the name is seen; a request that names it is placed there or refused, never moved. A rank that
is lost takes its state along: the name is remembered as gone, so that the refusal can say so.
"""

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from wire.ids import Target


class Pin(msgspec.Struct, kw_only=True):
    """Where one engine keeps the state of a name."""

    target: Target
    last_used_s: float
    #: The engine process that had it is gone.
    is_lost: bool = False


class Pins:
    """Pins by name, the longest unused first. Bounded in time and number."""

    def __init__(self, *, idle_ttl_s: float, max_pins: int) -> None:
        self._pins: OrderedDict[str, Pin] = OrderedDict()
        self._idle_ttl_s = idle_ttl_s
        self._max_pins = max_pins

    def __len__(self) -> int:
        return len(self._pins)

    def look_up(self, name: str, now_s: float) -> Pin | None:
        """Where a name's state is; None where it was never seen here, or not for too long. Changes nothing."""
        pin = self._pins.get(name)
        return None if pin is None or now_s - pin.last_used_s > self._idle_ttl_s else pin

    def find(self, name: str, now_s: float) -> Pin | None:
        """The same for a request that uses it, which keeps the name from being forgotten."""
        pin = self.look_up(name, now_s)
        if pin is not None:
            pin.last_used_s = max(pin.last_used_s, now_s)
            self._pins.move_to_end(name)
        return pin

    def store(self, name: str, target: Target, now_s: float) -> None:
        """An engine said that it keeps something under the name."""
        self._pins[name] = Pin(target=target, last_used_s=now_s)
        self._pins.move_to_end(name)
        while len(self._pins) > self._max_pins:
            self._pins.popitem(last=False)

    def remove(self, name: str) -> None:
        """An engine no longer keeps it."""
        self._pins.pop(name, None)

    def forget_targets(self, targets: Iterable[Target]) -> None:
        """Ranks were lost, and what they kept."""
        lost = frozenset(targets)
        for pin in self._pins.values() if lost else ():
            pin.is_lost = pin.is_lost or pin.target in lost

    def expire(self, now_s: float) -> None:
        """Forgets names that nobody used for too long."""
        while self._pins:
            name, pin = next(iter(self._pins.items()))
            if now_s - pin.last_used_s <= self._idle_ttl_s:
                break
            del self._pins[name]

    def check_invariants(self) -> None:
        """Raises AssertionError when the bound is broken."""
        if len(self._pins) > self._max_pins:
            raise AssertionError(f"{len(self._pins)} pins, {self._max_pins} allowed")
