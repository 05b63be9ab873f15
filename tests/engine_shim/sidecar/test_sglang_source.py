"""SGLang's own radix cache and event publisher as a source: the router behind a sidecar predicts what the tree has.

Runs where `scripts/fetch-sglang`, a part of `make test`, could get the wheel.
"""

import random
import socket
import sys
from pathlib import Path

import pytest
from beside import MODEL, wait_until
from sglang_source import load_sglang

from prefix_index import BlockChain, block_hashes
from tests.downloads import check_pinned
from wire.block_hash import namespace_seed

PAGE_TOKENS = 4
WHEEL = Path(__file__).parents[3] / "build/wheels/sglang-0.5.10.post1-py3-none-any.whl"


@pytest.fixture
def sglang(tmp_path):
    pytest.importorskip("torch", reason="SGLang's tree keeps its indices in torch tensors")
    with load_sglang(check_pinned(WHEEL), tmp_path) as modules:
        yield modules


class Allocator:
    """Pages of a pool that nobody reads."""

    device = "cpu"

    def free(self, _pages):
        return


class Scheduler:
    """What SGLang's scheduler does with the tree: look up, insert, evict, publish."""

    def __init__(self, modules, publisher):
        self.torch = sys.modules["torch"]
        self.events, self.radix, self.base = modules
        self.publisher = publisher
        self.tree = self.radix.RadixCache.create_simulated(
            mock_allocator=Allocator(), page_size=PAGE_TOKENS, enable_kv_cache_events=True
        )
        self.batches = 0

    def use_pairs(self):
        """As with EAGLE drafts."""
        self.tree.is_eagle = True

    def key(self, prompt):
        return self.radix.RadixKey(prompt, None)

    def cached(self, prompt):
        """Tokens that the tree has; a prompt's last token is always computed."""
        head = prompt[:-1]
        return len(self.tree.match_prefix(self.base.MatchPrefixParams(key=self.key(head))).device_indices)

    def serve(self, prompt):
        pages = (len(prompt) - self.tree.is_eagle) // PAGE_TOKENS * PAGE_TOKENS
        whole = prompt[: pages + self.tree.is_eagle]
        self.tree.insert(self.base.InsertParams(key=self.key(whole), value=self.torch.arange(len(whole))))
        self.publish()

    def evict(self, tokens):
        self.tree.evict(self.base.EvictParams(num_tokens=tokens))
        self.publish()

    def reset(self):
        self.tree.reset()
        self.publish()

    def publish(self):
        events = self.tree.take_events()
        if events:
            self.publisher.publish(self.events.KVEventBatch(ts=float(self.batches), events=events))
            self.batches += 1


def is_free(port):
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


@pytest.fixture
def scheduler(sglang, bench):
    engine = bench.engine(dialect="sglang")
    (sockets,) = engine.ranks
    sockets.close()
    wait_until(lambda: is_free(sockets.port) and is_free(sockets.replay_port), "the ports")
    publisher = sglang[0].ZmqEventPublisher(
        0, endpoint=f"tcp://*:{sockets.port}",
        replay_endpoint=f"tcp://*:{sockets.replay_port}", buffer_steps=8,
    )  # fmt: skip
    engine.ranks = []
    yield engine, Scheduler(sglang, publisher)
    publisher.shutdown()


def test_a_router_behind_a_sidecar_of_sglang_predicts_what_its_tree_has(scheduler, bench):
    engine, served = scheduler
    served.publish()
    served.serve(list(range(40)))
    url, service = bench.sidecar(engine, model=MODEL)
    wait_until(lambda: service.is_ready and service.hub.to_views()[0].blocks == 10, "the mirror")
    router = bench.router(url)
    (target,) = (view.target for view in router.feed.to_views())
    rng = random.Random(5)
    hits = 0
    for _ in range(80):
        prompt = [*range(rng.choice((0, 8, 24, 40))), *(rng.randrange(3) + 1_000 for _ in range(rng.randrange(1, 20)))]
        wait_until(lambda: in_step(router, service, served), "a router in step")
        chain = BlockChain(PAGE_TOKENS, tuple(block_hashes(prompt, PAGE_TOKENS, namespace_seed(MODEL))), len(prompt))
        assert router.feed.find_reuse((chain,)).get(target, 0) == served.cached(prompt)
        hits += served.cached(prompt) > 0
        served.serve(prompt)
        if rng.random() < 0.2:
            served.evict(rng.randrange(1, 30))
        if rng.random() < 0.03:
            served.reset()
    assert hits > 25


def test_A19_keys_of_token_pairs_are_looked_up_in_their_own_namespace(scheduler, bench):
    engine, served = scheduler
    engine.answers["/server_info"]["speculative_algorithm"] = "EAGLE3"
    served.use_pairs()
    url, service = bench.sidecar(engine, model=MODEL)
    wait_until(lambda: service.is_ready, "the mirror")
    router = bench.router(url)
    assert router.facts.is_bigram
    (target,) = (view.target for view in router.feed.to_views())
    rng = random.Random(6)
    exact, slack = 0, 0
    served.publish()
    for _ in range(60):
        prompt = [*range(rng.choice((0, 8, 24, 39))), *(rng.randrange(3) + 1_000 for _ in range(rng.randrange(1, 20)))]
        wait_until(lambda: not served.batches or in_step(router, service, served), "a router in step")
        hashes = tuple(block_hashes(prompt, PAGE_TOKENS, namespace_seed(MODEL, bigram=True)))
        predicted = router.feed.find_reuse((BlockChain(PAGE_TOKENS, hashes, len(prompt) - 1),)).get(target, 0)
        # Whether a last block is the prompt's is told by the block after it.
        assert predicted - served.cached(prompt) in (0, PAGE_TOKENS)
        exact += predicted == served.cached(prompt) > 0
        slack += predicted != served.cached(prompt)
        served.serve(prompt)
    assert exact > 20
    assert 0 < slack < exact
    plain = BlockChain(PAGE_TOKENS, tuple(block_hashes(range(40), PAGE_TOKENS, namespace_seed(MODEL))), 40)
    assert target not in router.feed.find_reuse((plain,))


def in_step(router, service, served):
    """Whether all that the tree told has reached the router."""
    mirrored = service.hub.to_views()[0]
    return (mirrored.engine_seq, router.view().last_seq, router.view().trust.value) == (
        served.batches - 1,
        mirrored.next_seq - 1,
        "exact",
    )
