"""What an index of several tiers must do: host domains, shared pools, alternatives with their amounts, caps."""

import pytest
from index_words import FULL, PROMPT, STATE, WINDOW, A, B, blocks, chain, removed
from msgspec.structs import replace

from prefix_index.base import Alternative, Load, Reach
from prefix_index.layout import GroupLayout, Layout
from wire.events import AllBlocksCleared, Medium
from wire.ids import Target

HOST, POOL = {"medium": Medium.HOST}, {"medium": Medium.EXTERNAL}


@pytest.fixture
def index(kind, tiers):
    made = kind()
    made.attach(A, model="m", host="h", pools=("p",))
    made.attach(B, model="m", host="h", pools=("p",))
    yield made
    made.check_invariants()


def apply(index, *events, holder=A):
    return [index.apply(holder, event) for event in events]


def amounts(index, holder=A, tokens=PROMPT, *sizes):
    """Reach and reused tokens of every alternative."""
    return [(each.reach, each.reuse_tokens) for each in index.find_alternatives(chain(tokens, *sizes), holder)]


def load(tokens, source, size_bytes=None, group_idx=None, component="full"):
    return Load(group_idx, component, source, tokens, size_bytes)


def test_credit_of_device_host_and_pool_stays_apart(index):
    apply(index, blocks(1, 2), blocks(1, 5, **HOST), blocks(1, 7, **POOL))
    assert index.find_reuse(chain()) == {A: 8}
    assert index.find_alternatives(chain(), A) == (
        Alternative(Reach.DEVICE, 8),
        Alternative(Reach.HOST, 20, (load(12, Reach.HOST),)),
        Alternative(Reach.POOLS, 28, (load(12, Reach.HOST), load(8, Reach.POOLS))),
    )


def test_a_tier_that_adds_nothing_is_no_alternative(index):
    apply(index, blocks(1, 5), blocks(1, 5, **HOST))
    assert amounts(index) == [(Reach.DEVICE, 20)]
    assert amounts(index, Target("nobody", 0)) == []


def test_the_last_token_is_computed_whatever_the_tier(index):
    apply(index, blocks(1, 8, **HOST))
    assert amounts(index, A, PROMPT[:32]) == [(Reach.HOST, 28)]


def test_holes_of_one_tier_are_filled_from_the_next(index):
    apply(index, blocks(1, 8), removed(3, 4), blocks(3, 3, **HOST), blocks(4, 4, **POOL))
    assert amounts(index) == [(Reach.DEVICE, 8), (Reach.HOST, 12), (Reach.POOLS, 32)]


def test_ranks_of_a_host_domain_read_what_the_others_put_there(index):
    apply(index, blocks(1, 4, **HOST), holder=B)
    apply(index, blocks(1, 1))
    assert amounts(index) == [(Reach.DEVICE, 4), (Reach.HOST, 16)]
    index.drop(B)
    assert amounts(index) == [(Reach.DEVICE, 4)]


def test_a_rank_without_a_domain_has_its_host_to_itself(index):
    alone = Target("alone", 0)
    index.attach(alone, model="m")
    apply(index, blocks(1, 2, **HOST), blocks(1, 3, **POOL), holder=alone)
    assert amounts(index, alone) == [(Reach.HOST, 8), (Reach.POOLS, 12)]
    assert amounts(index) == []
    index.drop(alone)
    index.attach(alone, model="m")
    assert amounts(index, alone) == []


def test_another_model_in_the_same_domain_and_pool_is_another_namespace(index):
    index.attach(B, model="other", host="h", pools=("p",))
    apply(index, blocks(1, 4, **HOST), blocks(1, 4, **POOL), holder=B)
    assert amounts(index) == []


def test_what_is_in_a_pool_belongs_to_the_pool(index):
    apply(index, blocks(1, 4, **POOL), AllBlocksCleared(), holder=B)
    index.drop(B)
    assert amounts(index) == [(Reach.POOLS, 16)]
    assert index.drop_pool("p") == 4
    assert amounts(index) == []


def test_a_pool_keeps_one_copy_whoever_stores_it(index):
    apply(index, blocks(1, 4, **POOL))
    apply(index, blocks(1, 4, **POOL), holder=B)
    assert apply(index, removed(4, **POOL), holder=B)[0].unknown_removals == 0
    assert amounts(index) == [(Reach.POOLS, 12)]
    assert apply(index, removed(4, **POOL))[0].unknown_removals == 0
    assert apply(index, removed(4, **POOL))[0].unknown_removals == 1


def test_a_pool_is_read_by_a_rank_that_has_told_nothing_yet(index):
    apply(index, blocks(1, 8, **FULL, **POOL), blocks(7, 8, **WINDOW, **POOL), holder=B)
    index.drop(B)
    assert amounts(index) == [(Reach.POOLS, 32)]


def test_several_pools_are_read_and_the_first_is_written(index):
    index.attach(B, model="m", pools=("q", "p"))
    apply(index, blocks(1, 2, **POOL))
    apply(index, blocks(3, 4, **POOL), blocks(1, 2), holder=B)
    assert amounts(index, B) == [(Reach.DEVICE, 8), (Reach.POOLS, 16)]
    assert amounts(index, A) == [(Reach.POOLS, 8)]


def test_offloading_connectors_may_call_the_host_cpu(index):
    apply(index, blocks(1, 4, medium="CPU"))
    assert amounts(index) == [(Reach.HOST, 16)]


def test_an_unknown_tier_is_refused_and_counted(index):
    assert apply(index, blocks(1, 4, medium="MOON"))[0].refused == 4
    assert amounts(index) == []


def test_losing_events_takes_the_credit_of_every_tier(index):
    apply(index, blocks(1, 4), blocks(1, 4, **HOST), blocks(1, 4, **POOL))
    index.doubt(A)
    assert amounts(index) == []
    apply(index, blocks(5, 5))
    assert amounts(index) == [(Reach.DEVICE, 20)]


def test_bytes_follow_the_layout(index):
    layout = Layout(
        (
            GroupLayout(kind="mamba", checkpoint_bytes=1_000, is_offloaded=True),
            GroupLayout(kind="full_attention", bytes_per_token=10),
        )
    )
    index.attach(A, model="m", layout=layout)
    apply(
        index, blocks(1, 2, **FULL), blocks(2, 2, **STATE), blocks(1, 4, **FULL, **HOST), blocks(4, 4, **STATE, **HOST)
    )
    host = index.find_alternatives(chain(), A)[-1]
    assert (host.reach, host.reuse_tokens) == (Reach.HOST, 16)
    assert (host.load_tokens(Reach.HOST), host.load_bytes(Reach.HOST)) == (12, 1_080)
    assert (host.load_tokens(Reach.POOLS), host.load_bytes(Reach.POOLS)) == (0, 0)


def test_bytes_are_unknown_without_a_layout(index):
    apply(index, blocks(1, 4, **HOST))
    assert index.find_alternatives(chain(), A)[0].load_bytes(Reach.HOST) is None


def test_a_window_can_be_rebuilt(index):
    apply(index, blocks(1, 8, **FULL), blocks(1, 2, **WINDOW))
    assert index.find_alternatives(chain(), A) == (
        Alternative(Reach.DEVICE, 8),
        Alternative(Reach.DEVICE, 32, window_tokens=7),
    )


def test_the_window_of_offloaded_full_attention_can_be_rebuilt(index):
    apply(index, blocks(1, 8, **FULL, **HOST), blocks(1, 1, **WINDOW))
    assert index.find_alternatives(chain(), A) == (
        Alternative(Reach.HOST, 4, (load(4, Reach.HOST, group_idx=1),)),
        Alternative(Reach.HOST, 32, (load(32, Reach.HOST, group_idx=1),), window_tokens=7),
    )


def test_a_state_can_be_replayed_from_the_last_checkpoint(index):
    apply(index, blocks(1, 8, **FULL), blocks(5, 5, **STATE))
    assert index.find_alternatives(chain(), A) == (
        Alternative(Reach.DEVICE, 20),
        Alternative(Reach.DEVICE, 32, replay_tokens=12),
    )


def test_a_replay_from_nothing_is_no_alternative(index):
    apply(index, blocks(1, 8, **FULL), blocks(1, 8, **STATE), removed(*range(1, 9), group_idx=0))
    assert index.find_alternatives(chain(), A) == ()


def test_windows_and_states_can_both_be_missing(index):
    window = WINDOW | {"group_idx": 2}
    apply(index, blocks(1, 8, **FULL), blocks(5, 5, **STATE), blocks(1, 2, **window))
    found = index.find_alternatives(chain(), A)
    assert [(each.reuse_tokens, each.window_tokens, each.replay_tokens) for each in found] == [(20, 7, 0), (32, 7, 12)]
    assert found[-1].recompute_tokens == 12


def test_A08_tiers_with_blocks_of_different_sizes_are_compared_in_tokens(index):
    wide = blocks(1, 1, size=16)
    apply(index, wide, blocks(1, 6, **HOST))
    assert index.find_reuse(chain(PROMPT, 16, 4)) == {A: 16}
    assert amounts(index, A, (*PROMPT, *PROMPT), 16, 4) == [(Reach.DEVICE, 16)]
    apply(index, blocks(7, 8, **HOST))
    assert amounts(index, A, PROMPT, 16, 4) == [(Reach.DEVICE, 16), (Reach.HOST, 32)]


def test_A11_a_device_removal_leaves_host_credit_and_a_host_removal_nothing(index):
    apply(index, blocks(1, 3), blocks(1, 3, **HOST), removed(3, 2, 1))
    assert amounts(index) == [(Reach.HOST, 12)]
    apply(index, removed(3, 2, 1, **HOST))
    assert amounts(index) == []


def test_A22_each_rank_of_a_worker_is_its_own_holder(index):
    ranks = [Target("w", rank) for rank in range(4)]
    for rank in ranks:
        index.attach(rank, model="m")
    apply(index, blocks(1, 4), holder=ranks[3])
    assert index.find_reuse(chain()) == {ranks[3]: 16}


@pytest.mark.usefixtures("generations")
def test_A24_an_event_of_an_earlier_registration_is_discarded(index):
    old = index.attach(A, model="m")
    index.drop(A)
    new = index.attach(A, model="m")
    assert index.apply(A, blocks(1, 3), generation=old).stored == ()
    assert index.find_reuse(chain()) == {}
    assert len(index.apply(A, blocks(1, 3), generation=new).stored) == 3


def test_A25_pools_hold_all_pages_of_full_attention_and_the_last_of_a_window(index):
    prompt = tuple(range(41))
    apply(index, blocks(1, 10, tokens=prompt, **FULL, **POOL), blocks(9, 10, tokens=prompt, **WINDOW, **POOL))
    assert amounts(index, B, prompt) == [(Reach.POOLS, 40)]
    apply(index, removed(9, group_idx=0, **POOL))
    found = index.find_alternatives(chain(prompt), B)
    assert [(each.reuse_tokens, each.window_tokens) for each in found] == [(40, 7)]


def prompt_of(number):
    """33 tokens that no other number has in any place."""
    return tuple(range(1_000 * number, 1_000 * number + 33))


def whole(number):
    """All 8 blocks of a prompt, under names of its own."""
    event = blocks(1, 8, tokens=prompt_of(number))
    return replace(event, block_hashes=tuple(1_000 * number + name for name in event.block_hashes))


@pytest.mark.usefixtures("caps")
def test_a_rank_above_its_cap_forgets_what_was_stored_longest_ago(kind):
    index = kind(max_holder_blocks=32)
    index.attach(A, model="m")
    index.attach(B, model="m")
    apply(index, whole(1), holder=B)
    *_, change = apply(index, *(whole(number) for number in range(1, 6)))
    assert sorted(change.removed) == sorted(chain(prompt_of(1)).hashes)
    assert (index.size().blocks, index.size().evicted_blocks) == (40, 8)
    assert index.find_reuse(chain(prompt_of(1))) == {B: 32}
    assert all(index.find_reuse(chain(prompt_of(number))) == {A: 32} for number in range(2, 6))
    assert apply(index, removed(1_001))[0].unknown_removals == 1
    index.check_invariants()


@pytest.mark.usefixtures("caps")
def test_a_prompt_stored_again_is_young_again(kind):
    index = kind(max_holder_blocks=32)
    index.attach(A, model="m")
    apply(index, *(whole(number) for number in (1, 2, 3, 4, 1, 5)))
    assert [number for number in range(1, 6) if not index.find_reuse(chain(prompt_of(number)))] == [2]
    index.check_invariants()


@pytest.mark.usefixtures("caps")
def test_blocks_that_wait_for_their_parent_count_too(kind):
    index = kind(max_holder_blocks=4)
    index.attach(A, model="m")
    apply(index, *(replace(blocks(9, 9, tokens=PROMPT * 2), block_hashes=(number,)) for number in range(100, 110)))
    assert index.size().blocks <= 4
    index.check_invariants()


@pytest.mark.usefixtures("caps")
def test_all_ranks_and_pools_together_are_bounded(kind):
    index = kind(max_blocks=6, max_holder_blocks=5)
    index.attach(A, model="m")
    index.attach(B, model="m", pools=("p",))
    apply(index, blocks(1, 4))
    apply(index, blocks(1, 2), holder=B)
    apply(index, blocks(1, 8, **POOL), holder=B)
    size = index.size()
    assert size.blocks <= 6
    assert size.evicted_blocks > 0
    index.check_invariants()
    index.drop(A)
    index.drop(B)
    index.drop_pool("p")
    assert index.size().blocks == 0
