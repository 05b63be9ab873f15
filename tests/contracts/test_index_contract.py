"""What every index must do, whatever it is made of; public faults of indexes among it."""

import pytest

from prefix_index import BlockChain, PrefixIndex, block_hashes
from prefix_index.base import CopyRule
from prefix_index.native import NativePrefixIndex
from wire.block_hash import namespace_seed
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Medium
from wire.ids import Target

A, B = Target("a", 0), Target("b", 1)
PROMPT = tuple(range(100, 133))  # 8 blocks of 4 and one token


@pytest.fixture
def index(kind):
    made: PrefixIndex = kind()
    made.attach(A, model="m")
    made.attach(B, model="m")
    yield made
    made.check_invariants()


def chain(tokens=PROMPT, *, block_tokens=4, count=None, model="m", **namespace) -> BlockChain:
    hashes = block_hashes(tokens, block_tokens, namespace_seed(model, **namespace))
    return BlockChain(block_tokens, tuple(hashes), len(tokens) if count is None else count)


def blocks(first, last, *, parent="before", **fields) -> BlockStored:
    """Blocks first..last of PROMPT, named 1, 2, 3, ...; the parent is the block before unless said."""
    name = (first - 1 or None) if parent == "before" else parent
    defaults = {"token_ids": PROMPT[4 * (first - 1) : 4 * last], "block_tokens": 4}
    return BlockStored(block_hashes=tuple(range(first, last + 1)), parent_block_hash=name, **(defaults | fields))


def removed(*names, **fields) -> BlockRemoved:
    return BlockRemoved(block_hashes=names, **fields)


def places(first, last) -> tuple[int, ...]:
    return chain().hashes[first - 1 : last]


def test_each_holder_gets_the_tokens_of_its_own_prefix(index):
    index.apply(A, blocks(1, 5))
    index.apply(B, blocks(1, 2))
    assert index.find_reuse(chain()) == {A: 20, B: 8}


def test_a_change_names_what_became_resident_and_what_went(index):
    assert index.apply(A, blocks(1, 3)).stored == places(1, 3)
    assert index.apply(A, removed(3, 2)).removed == (*places(3, 3), *places(2, 2))
    assert index.apply(A, AllBlocksCleared()).cleared
    assert index.block_count(A) == 0


def test_a_hole_ends_the_prefix_and_filling_it_restores_it(index):
    index.apply(A, blocks(1, 8))
    index.apply(B, blocks(1, 8))
    index.apply(A, removed(3))
    assert index.find_reuse(chain()) == {A: 8, B: 32}
    index.apply(A, blocks(3, 3))
    assert index.find_reuse(chain()) == {A: 32, B: 32}


def test_a_holder_without_the_first_block_is_not_named(index):
    index.apply(A, blocks(1, 8))
    index.apply(A, removed(1))
    assert index.find_reuse(chain()) == {}


@pytest.mark.parametrize(("token_count", "reusable"), [(33, 32), (32, 28), (31, 28), (4, 0), (1, 0), (0, 0)])
def test_the_last_token_of_a_prompt_is_always_computed(index, token_count, reusable):
    index.apply(A, blocks(1, 8))
    tokens = PROMPT[:token_count]
    assert index.find_reuse(chain(tokens)) == ({A: reusable} if reusable else {})


def test_a_match_changes_nothing(index):
    index.apply(A, blocks(1, 3))
    before = index.find_reuse(chain())
    index.check_invariants()
    assert index.find_reuse(chain()) == before == {A: 12}


def test_dropping_a_holder_forgets_it_and_says_how_much(index):
    index.apply(A, blocks(1, 3))
    index.apply(B, blocks(1, 1))
    assert index.drop(A) == 3
    assert index.find_reuse(chain()) == {B: 4}
    assert index.drop(A) == 0


def test_clearing_a_holder_keeps_it_attached(index):
    index.apply(A, blocks(1, 3))
    assert index.clear(A) == 3
    index.apply(A, blocks(1, 1))
    assert index.find_reuse(chain()) == {A: 4}


def test_attaching_again_starts_from_nothing(index):
    index.apply(A, blocks(1, 3))
    index.attach(A, model="m")
    assert index.find_reuse(chain()) == {}


def test_more_holders_than_a_machine_word_has_bits(index):
    fleet = [Target(f"w{number}", 0) for number in range(150)]
    for number, holder in enumerate(fleet):
        index.attach(holder, model="m")
        index.apply(holder, blocks(1, 1 + number % 8))
    for holder in fleet[::3]:
        index.drop(holder)
    expected = {holder: 4 * (1 + number % 8) for number, holder in enumerate(fleet) if number % 3}
    assert index.find_reuse(chain()) == expected


def test_block_sizes_are_those_of_the_holders(index):
    index.apply(A, blocks(1, 2))
    wide = BlockStored(block_hashes=(1,), parent_block_hash=None, token_ids=PROMPT[:8], block_tokens=8)
    index.apply(B, wide)
    assert index.block_sizes() == {4, 8}
    assert index.find_reuse(chain(block_tokens=8)) == {B: 8}
    assert index.find_reuse(chain()) == {A: 8}


def test_A05_orphans_take_their_place_when_the_parents_turn_up(index):
    change = index.apply(A, blocks(3, 3, parent=1))
    assert (change.stored, change.orphaned) == ((), 1)
    assert index.apply(A, blocks(4, 4, parent=3)).orphaned == 1
    assert index.find_reuse(chain()) == {}
    index.apply(A, removed(3))
    index.apply(A, blocks(3, 3, parent=2))
    assert len(index.apply(A, blocks(1, 2)).stored) == 4
    assert index.find_reuse(chain()) == {A: 16}


def test_A05_an_orphan_removed_before_its_parent_came_stays_away(index):
    index.apply(A, blocks(2, 4))
    index.apply(A, removed(3))
    index.apply(A, blocks(1, 1))
    assert index.find_reuse(chain()) == {A: 8}


def test_A05_a_placed_block_gives_its_place_to_a_child_told_in_an_orphaned_event(index):
    index.apply(A, blocks(1, 2))
    index.apply(A, blocks(2, 3, parent=77))
    assert index.find_reuse(chain()) == {A: 12}


def test_A06_a_parent_that_is_never_announced_is_no_root_and_costs_bounded_room(kind):
    index = kind(max_orphans=10)
    index.attach(A, model="m")
    for number in range(100):
        event = blocks(1, 1, parent=10_000 + number)
        index.apply(
            A,
            BlockStored(
                block_hashes=(number,), parent_block_hash=10_000 + number, token_ids=(1, 2, 3, 4), block_tokens=4
            ),
        )
        assert index.apply(A, event).stored == ()
    assert index.find_reuse(chain()) == {}
    assert index.block_count(A) == 0
    assert index.apply(A, removed(5)).unknown_removals == 1
    index.check_invariants()


@pytest.mark.usefixtures("tiers")
def test_A08_a_tier_with_smaller_blocks_is_not_counted_in_blocks(index):
    index.apply(A, BlockStored(block_hashes=(9,), parent_block_hash=None, token_ids=PROMPT[:16], block_tokens=16))
    index.apply(B, blocks(1, 3, medium=Medium.HOST))
    assert index.find_reuse(chain(block_tokens=16)) == {A: 16}
    assert index.block_sizes() == {4, 16}
    assert index.find_reuse(chain()) == {}


@pytest.mark.usefixtures("groups")
def test_A08_an_event_whose_tokens_do_not_fill_its_blocks_gives_no_credit(index):
    change = index.apply(A, blocks(1, 2, token_ids=PROMPT[:5]))
    assert (change.stored, change.refused) == ((), 2)
    assert index.find_reuse(chain()) == {}


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize(
    "group",
    [
        {"group_idx": 1},
        {"group_idx": 0, "group_kind": "sliding_window"},
        {"group_idx": 0, "group_kind": "something_new"},
    ],
)
def test_A09_a_group_whose_rule_is_not_known_is_no_reusable_prefix(index, group):
    index.apply(A, blocks(1, 8, **group))
    assert index.find_reuse(chain()) == {}
    assert not index.is_modelled(A)
    index.apply(A, removed(1, 2, group_idx=group["group_idx"]))
    assert index.block_count(A) == 0
    index.apply(A, blocks(1, 8, group_idx=2, group_kind="full_attention"))
    assert index.find_reuse(chain()) == {}


@pytest.mark.usefixtures("groups")
def test_A09_groups_are_apart_even_under_equal_hashes(index):
    full = {"group_idx": 1, "group_kind": "full_attention"}
    index.apply(A, blocks(1, 4, **full))
    index.apply(A, blocks(3, 4, group_idx=0, group_kind="sliding_window", window_tokens=4, parent=2))
    index.apply(A, removed(3, group_idx=0))
    assert index.find_reuse(chain()) == {A: 16}


def test_a_prefix_counts_only_where_every_full_attention_group_has_it(index):
    index.apply(A, blocks(1, 4, group_idx=0, group_kind="full_attention"))
    assert set(index.apply(A, blocks(1, 2, group_idx=1, group_kind="full_attention")).removed) == set(places(1, 4))
    assert index.find_reuse(chain()) == {A: 8}
    index.apply(A, removed(2, group_idx=0))
    assert index.find_reuse(chain()) == {A: 4}


def test_A11_a_device_removal_does_not_erase_the_host_copy(index):
    index.apply(A, blocks(1, 3))
    index.apply(A, blocks(1, 3, medium=Medium.HOST))
    assert index.apply(A, removed(3, 2, 1)).removed == (*places(3, 3), *places(2, 2), *places(1, 1))
    assert index.find_reuse(chain()) == {}
    # The host copies are still known: children stored on them find their place.
    index.apply(A, blocks(4, 4))
    index.apply(A, blocks(1, 3))
    assert index.find_reuse(chain()) == {A: 16}
    assert index.apply(A, removed(1, 2, 3, medium=Medium.HOST)).unknown_removals == 0
    assert index.find_reuse(chain()) == {A: 16}
    assert index.apply(A, removed(1, medium=Medium.HOST)).unknown_removals == 1


def test_A13_a_hole_from_an_early_removal_lasts_until_the_block_is_told_again(index):
    index.apply(A, blocks(1, 7))
    index.apply(A, removed(3))
    assert index.find_reuse(chain()) == {A: 8}
    index.apply(A, blocks(3, 3))
    assert index.find_reuse(chain()) == {A: 28}


def test_A14_each_counted_copy_has_its_own_removal(index):
    index.apply(A, blocks(1, 2))
    index.apply(A, blocks(2, 2))
    assert index.apply(A, removed(2)).removed == ()
    assert index.find_reuse(chain()) == {A: 8}
    assert index.apply(A, removed(2)).removed == places(2, 2)
    assert index.apply(A, removed(2)).unknown_removals == 1
    index.apply(A, blocks(2, 2))
    assert index.find_reuse(chain()) == {A: 8}


def test_A14_a_clear_resets_the_counts(index):
    index.apply(A, blocks(1, 2))
    index.apply(A, blocks(2, 2))
    index.apply(A, AllBlocksCleared())
    index.apply(A, blocks(1, 2))
    assert index.apply(A, removed(2)).removed == places(2, 2)


def test_A14_in_a_refresh_dialect_one_removal_drops_a_block_told_twice(kind):
    index = kind()
    index.attach(A, model="m", rule=CopyRule.REFRESHED)
    index.apply(A, blocks(1, 2))
    index.apply(A, blocks(2, 2))
    assert index.apply(A, removed(2)).removed == places(2, 2)
    index.check_invariants()


def test_a_reused_prefix_told_again_from_its_start_adds_no_copies(index):
    index.apply(A, blocks(1, 4))
    assert index.apply(A, blocks(1, 3)).stored == ()
    assert index.apply(A, removed(3)).removed == places(3, 3)


def test_a_prompt_told_again_with_a_new_block_is_a_second_copy(index):
    index.apply(A, blocks(1, 3))
    index.apply(A, blocks(1, 4))
    assert index.apply(A, removed(3)).removed == ()


def test_a_recomputed_prefix_of_a_window_model_is_a_second_copy(index):
    index.apply(A, blocks(1, 3, group_idx=1, group_kind="full_attention"))
    index.apply(A, blocks(3, 3, group_idx=0, group_kind="sliding_window", window_tokens=4))
    index.apply(A, blocks(1, 3, group_idx=1, group_kind="full_attention"))
    assert index.apply(A, removed(3, group_idx=1)).removed == ()


def test_A15_an_unknown_hash_does_not_abort_the_rest_of_a_removal(index):
    index.apply(A, blocks(2, 3, parent=None, token_ids=PROMPT[:8]))
    index.apply(B, blocks(1, 3))
    change = index.apply(A, removed(1, 2, 3))
    assert (len(change.removed), change.unknown_removals) == (2, 1)
    assert index.find_reuse(chain()) == {B: 12}


def test_A17_equal_tokens_under_different_salts_are_different_blocks(index):
    index.apply(A, blocks(1, 3, cache_salt="s1"))
    index.apply(B, blocks(1, 3, extra_keys=(("s2",), None, None)))
    assert index.find_reuse(chain(cache_salt="s1")) == {A: 12}
    assert index.find_reuse(chain(cache_salt="s2")) == {B: 12}
    assert index.find_reuse(chain()) == {}


def test_A17_adapters_and_models_are_namespaces_too(index):
    index.apply(A, blocks(1, 3, lora_name="ad1", extra_keys=(("ad1", "s"), ("ad1",), ("ad1",))))
    index.apply(B, blocks(1, 3, lora_id=4))
    assert index.find_reuse(chain(adapter="ad1", cache_salt="s")) == {A: 12}
    assert index.find_reuse(chain(adapter="4")) == {B: 12}
    assert index.find_reuse(chain(model="other", adapter="4")) == {}


def test_A18_different_images_share_only_the_text_before_them(index):
    index.apply(A, blocks(1, 3, extra_keys=(None, ("image-a", 0), None)))
    assert index.find_reuse(chain()) == {A: 4}
    index.apply(B, blocks(1, 3, extra_keys=(None, ("image-b", 0), None)))
    one, other = (index.apply(holder, removed(1, 2, 3)).removed for holder in (A, B))
    assert one[0] == other[0]
    assert not set(one[1:]) & set(other[1:])


def test_A19_bigram_holders_match_in_their_own_namespace(kind):
    index = kind()
    index.attach(A, model="m", bigram=True)
    index.attach(B, model="m")
    for holder in (A, B):
        index.apply(holder, blocks(1, 3))
    assert index.find_reuse(chain(bigram=True)) == {A: 12}
    assert index.find_reuse(chain()) == {B: 12}


def test_A24_an_event_of_a_holder_that_was_dropped_changes_nothing(index):
    index.apply(A, blocks(1, 3))
    index.drop(A)
    assert index.apply(A, blocks(1, 3)).stored == ()
    assert index.find_reuse(chain()) == {}
    index.attach(A, model="m")
    assert index.find_reuse(chain()) == {}


def test_A16_what_was_removed_leaves_nothing_behind(index):
    for start in range(200):
        tokens = (*PROMPT[:4], *range(start, start + 8))
        names = (1, 1_000 + start, 2_000 + start)
        index.apply(A, BlockStored(block_hashes=names, parent_block_hash=None, token_ids=tokens, block_tokens=4))
        index.apply(A, removed(*reversed(names)))
    assert index.block_count(A) == 0
    assert index.size().blocks == 0
    if isinstance(index, NativePrefixIndex):
        assert index.count().nodes == 0


def test_hashes_of_32_bytes_work_as_integers_do(index):
    names = tuple(bytes([number]) * 32 for number in range(2))
    index.apply(A, BlockStored(block_hashes=names, parent_block_hash=None, token_ids=PROMPT[:8], block_tokens=4))
    assert index.find_reuse(chain()) == {A: 8}
    index.apply(A, removed(names[1]))
    assert index.find_reuse(chain()) == {A: 4}
