"""The prefix cache does what the naive one does, under any sequence of verbs, and its events tell all of it."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from naive_prefix_cache import NaivePrefixCache

from engine_shim.engine.cache.page_hash import page_hashes
from engine_shim.engine.cache.prefix_cache import PrefixCache
from engine_shim.engine.cache.token_bytes import pack_tokens
from wire.events import AllBlocksCleared, BlockStored

PAGE_TOKENS = 2
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=13)
SALTS = st.sampled_from([None, "s"])


class Held:
    """One request's lease in both caches, and its tokens."""

    def __init__(self, real, naive, tokens):
        self.real = real
        self.naive = naive
        self.tokens = tokens


class CacheMachine(RuleBasedStateMachine):
    leases = Bundle("leases")

    @initialize(pool_pages=st.integers(1, 14))
    def start(self, pool_pages):
        self.real = PrefixCache(page_tokens=PAGE_TOKENS, pool_pages=pool_pages)
        self.naive = NaivePrefixCache(PAGE_TOKENS, pool_pages)
        self.told = set()

    @rule(target=leases, tokens=PROMPTS, salt=SALTS)
    def lease(self, tokens, salt):
        match = self.real.match(pack_tokens(tokens), salt)
        assert len(match.pages) == self.naive.match_pages(salt, tokens)
        return Held(self.real.lease(match), self.naive.lease(salt, tokens), tokens)

    @rule(held=leases, more=st.lists(st.integers(0, 1), max_size=3))
    def append(self, held, more):
        held.tokens += more

    @rule(held=leases)
    def grow(self, held):
        pages = -(-len(held.tokens) // PAGE_TOKENS)
        assert self.real.grow(held.real, pages) == self.naive.grow(held.naive, pages)

    @rule(held=leases, share=st.floats(0, 1))
    def publish(self, held, share):
        computed = int(share * min(len(held.real.pages) * PAGE_TOKENS, len(held.tokens)))
        self.real.publish(held.real, pack_tokens(held.tokens), computed)
        self.naive.publish(held.naive, held.tokens, computed)

    @rule(held=consumes(leases))
    def release(self, held):
        self.real.release(held.real)
        self.naive.release(held.naive)

    @rule()
    def flush(self):
        assert self.real.flush() == self.naive.flush()

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
TestCacheModel.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
