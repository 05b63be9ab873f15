"""How much each key has asked for: token buckets a minute, and requests under way. Pure.

A bucket holds a minute's worth and fills evenly. Requests are paid when they come; tokens when they are known, those
of an answer at its end, so that a bucket may go below nothing and is filled up before the next request passes. What an
engine says of an answer may be anything: nobody owes more than `MAX_DEBT_MINUTES`.
"""

import math
from enum import StrEnum

import msgspec

from router.access.principal import KeyLimits

_MINUTE_S = 60.0
#: Minutes for which a key may have to wait, whatever its last answers are said to have taken.
MAX_DEBT_MINUTES = 60


class RateReason(StrEnum):
    """Which bound of a key was reached."""

    REQUESTS = "requests_per_minute"
    TOKENS = "tokens_per_minute"
    CONCURRENT = "concurrent_requests"


class Limited(msgspec.Struct, frozen=True):
    """A request that may not pass."""

    reason: RateReason
    #: Whole seconds after which it may, if nothing else comes.
    retry_after_s: int


class _Bucket:
    def __init__(self, per_minute: int, now_s: float) -> None:
        self.per_minute = per_minute
        self.level = float(per_minute)
        self.at_s = now_s

    def fill(self, now_s: float) -> None:
        """Bring it up to the moment; a clock that goes back fills nothing."""
        if now_s > self.at_s:
            self.level = min(float(self.per_minute), self.level + (now_s - self.at_s) * self.per_minute / _MINUTE_S)
            self.at_s = now_s

    def pay(self, amount: int) -> None:
        """Take so much out; a bucket goes below nothing only so far."""
        self.level = max(self.level - amount, -float(MAX_DEBT_MINUTES * self.per_minute))

    def find_wait_s(self, wanted: float) -> float:
        """Seconds until it holds so much."""
        return max(0.0, wanted - self.level) * _MINUTE_S / self.per_minute


class _Use:
    """What one key has in use."""

    def __init__(self) -> None:
        self.running = 0
        self.requests: _Bucket | None = None
        self.tokens: _Bucket | None = None

    def adopt(self, limits: KeyLimits, now_s: float) -> None:
        """Buckets as the limits are now; one whose limit changed begins full."""
        self.requests = _keep(self.requests, limits.requests_per_minute, now_s)
        self.tokens = _keep(self.tokens, limits.tokens_per_minute, now_s)


def _keep(bucket: _Bucket | None, per_minute: int | None, now_s: float) -> _Bucket | None:
    if per_minute is None:
        return None
    if bucket is None or bucket.per_minute != per_minute:
        return _Bucket(per_minute, now_s)
    bucket.fill(now_s)
    return bucket


class KeyRates:
    """Use of all keys that have limits."""

    def __init__(self) -> None:
        self._uses: dict[str, _Use] = {}

    def begin(self, key: str, limits: KeyLimits, now_s: float) -> Limited | None:
        """A request came; None where it passes, and then `end` is due once."""
        use = self._uses.get(key)
        if use is None:
            use = self._uses[key] = _Use()
        use.adopt(limits, now_s)
        if limits.concurrent_requests is not None and use.running >= limits.concurrent_requests:
            return Limited(RateReason.CONCURRENT, 1)
        if use.tokens is not None and use.tokens.level <= 0:
            return _limit(RateReason.TOKENS, use.tokens.find_wait_s(1.0))
        if use.requests is not None:
            if use.requests.level < 1:
                return _limit(RateReason.REQUESTS, use.requests.find_wait_s(1.0))
            use.requests.level -= 1
        use.running += 1
        return None

    def spend(self, key: str, tokens: int, now_s: float) -> None:
        """Tokens became known of a request of a key."""
        use = self._uses.get(key)
        if use is not None and use.tokens is not None:
            use.tokens.fill(now_s)
            use.tokens.pay(tokens)

    def end(self, key: str) -> None:
        """A request that passed is over."""
        use = self._uses.get(key)
        if use is None or use.running == 0:
            raise RuntimeError(f"a request of key {key!r} ended that was not under way")
        use.running -= 1

    def count_running(self, key: str) -> int:
        """Requests of a key under way."""
        use = self._uses.get(key)
        return 0 if use is None else use.running

    def forget(self, keys: frozenset[str]) -> None:
        """Drop all but these keys, where nothing of them is under way."""
        for key in [name for name, use in self._uses.items() if name not in keys and use.running == 0]:
            del self._uses[key]


def _limit(reason: RateReason, wait_s: float) -> Limited:
    return Limited(reason, max(1, math.ceil(wait_s)))
