"""Ways to serve a prompt on one rank beyond what lies in its device cache, and what reading the other tiers takes."""

import msgspec


class TierLinks(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a rank reads the tiers behind its device cache, by the worker's configuration."""

    #: Bytes a second from the host's memory; some 80% of a PCIe 5.0 x8 link where nothing is said.
    host_bytes_per_s: float = 2.0e10
    #: Bytes a second from shared pools; a 25 Gbit/s network, with its losses, where nothing is said.
    pool_bytes_per_s: float = 2.0e9
    #: The engine computes windows again, and runs recurrent layers again from a checkpoint, instead of missing.
    recomputes: bool = False


DEFAULT_LINKS = TierLinks()


class ReuseOption(msgspec.Struct, frozen=True, kw_only=True):
    """One way to serve a prompt on a rank: what is reused, what is fetched for it, what is computed again."""

    #: Farthest holder it draws on: `device`, `host` or `pools`.
    reach: str
    #: Tokens of the prompt's head that need no prefill from nothing.
    reuse_tokens: int
    #: Tokens to fetch, summed over cache groups, and their bytes; None where the worker's layout does not say bytes.
    host_tokens: int = 0
    host_bytes: int | None = 0
    pool_tokens: int = 0
    pool_bytes: int | None = 0
    #: Tokens before the boundary that are computed again for sliding windows.
    window_tokens: int = 0
    #: Tokens run again from a checkpoint for recurrent layers.
    replay_tokens: int = 0

    @property
    def recompute_tokens(self) -> int:
        """Tokens of the reused head that are computed again."""
        return max(self.window_tokens, self.replay_tokens)

    def find_load_s(self, links: TierLinks) -> float | None:
        """Seconds to fetch what is not on the device; None where it is not known how many bytes that is."""
        if self.host_bytes is None or self.pool_bytes is None:
            return None
        return self.host_bytes / links.host_bytes_per_s + self.pool_bytes / links.pool_bytes_per_s
