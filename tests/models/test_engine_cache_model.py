"""The prefix cache does what the naive one does, under any sequence of verbs, and its events tell all of it."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from naive_prefix_cache import NaivePrefixCache

from engine_shim.engine.cache.prefix_cache import PrefixCache
from engine_shim.engine.cache.token_bytes import pack_tokens
from tests.engine_shim.page_hashes import page_hashes
from wire.events import AllBlocksCleared, BlockStored

PAGE_TOKENS = 2
#: Prompts are beginnings of these, so that they share prefixes of every length.
TEXTS = ([0] * 16, [0] * 6 + [1] * 10, [0] * 3 + [1] * 13, [1] * 16)
PROMPTS = st.builds(lambda text, count: list(text[:count]), st.sampled_from(TEXTS), st.integers(1, 16))
SALTS = st.sampled_from([None, None, "s"])
NUMBERS = st.integers(0, 30)


class Held:
    """One request's lease in both caches, and its tokens."""

    def __init__(self, real, naive, tokens):
        self.real = real
        self.naive = naive
        self.tokens = tokens


class CacheMachine(RuleBasedStateMachine):
    @initialize(pool_pages=st.integers(1, 16))
    def start(self, pool_pages):
        self.real = PrefixCache(page_tokens=PAGE_TOKENS, pool_pages=pool_pages)
        self.naive = NaivePrefixCache(PAGE_TOKENS, pool_pages)
        self.held = []
        self.told = set()

    def choose(self, number):
        return self.held[number % len(self.held)]

    @rule(tokens=PROMPTS, salt=SALTS)
    def lease(self, tokens, salt):
        match = self.real.match(pack_tokens(tokens), salt)
        assert len(match.pages) == self.naive.match_pages(salt, tokens)
        self.held.append(Held(self.real.lease(match), self.naive.lease(salt, tokens), tokens))

    @precondition(lambda self: self.held)
    @rule(number=NUMBERS, token=st.integers(0, 1), count=st.integers(1, 5))
    def append(self, number, token, count):
        self.choose(number).tokens += [token] * count

    @precondition(lambda self: self.held)
    @rule(number=NUMBERS, left_tokens=st.integers(0, 3))
    def compute(self, number, left_tokens):
        held = self.choose(number)
        pages = -(-len(held.tokens) // PAGE_TOKENS)
        has_room = self.real.grow(held.real, pages)
        assert has_room == self.naive.grow(held.naive, pages)
        if has_room:
            computed = len(held.tokens) - left_tokens
            self.real.publish(held.real, pack_tokens(held.tokens), computed)
            self.naive.publish(held.naive, held.tokens, computed)

    @precondition(lambda self: self.held)
    @rule(number=NUMBERS)
    def release(self, number):
        held = self.held.pop(number % len(self.held))
        self.real.release(held.real)
        self.naive.release(held.naive)

    @precondition(lambda self: not self.held)
    @rule(tokens=PROMPTS)
    def flush(self, tokens):
        """Dropped and begun anew; refusal while leases are held is tested beside the cache."""
        assert self.real.flush()
        assert self.naive.flush()
        self.lease(tokens, None)
        assert not self.real.flush()

    @invariant()
    def every_page_is_in_one_place_and_both_agree(self):
        self.real.check_invariants()
        counts = self.real.count_pages()
        assert counts.free == self.naive.free_pages()
        assert counts.leased == self.naive.leased_pages()
        assert counts.cached == len(self.naive.cached) - len(self.naive.held())

    @invariant()
    def the_events_tell_what_is_cached(self):
        for event in self.real.take_events():
            if isinstance(event, AllBlocksCleared):
                self.told.clear()
            elif isinstance(event, BlockStored):
                assert event.parent_block_hash is None or event.parent_block_hash in self.told
                assert not self.told & set(event.block_hashes)
                self.told |= set(event.block_hashes)
            else:
                assert self.told >= set(event.block_hashes)
                self.told -= set(event.block_hashes)
        assert self.told == {
            page_hashes(tokens, PAGE_TOKENS, cache_salt=salt)[-1] for salt, tokens in self.naive.cached
        }


TestCacheModel = CacheMachine.TestCase
TestCacheModel.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
