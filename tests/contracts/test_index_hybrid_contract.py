"""What an index of hybrid models must do: groups, windows, checkpoints, declared layouts, kinds of one's own."""

import pytest
from index_words import FULL, PROMPT, STATE, WINDOW, A, B, blocks, chain, removed

from prefix_index.components import STANDARD, Recovery
from prefix_index.layout import GroupLayout, Layout
from wire.events import AllBlocksCleared

pytestmark = pytest.mark.usefixtures("groups")


@pytest.fixture
def index(kind):
    made = kind()
    made.attach(A, model="m")
    made.attach(B, model="m")
    yield made
    made.check_invariants()


def reuse(index, tokens=PROMPT, *sizes, holder=A, **namespace):
    return index.find_reuse(chain(tokens, *sizes, **namespace)).get(holder, 0)


def apply(index, *events, holder=A):
    return [index.apply(holder, event) for event in events]


@pytest.mark.parametrize(("first", "expected"), [(1, 32), (7, 32), (8, 0)])
def test_a_window_group_needs_its_window_before_the_boundary(index, first, expected):
    apply(index, blocks(first, 8, **WINDOW), blocks(1, 8, **FULL))
    assert reuse(index) == expected


def test_the_boundary_is_searched_downward_and_is_not_the_smallest_of_the_maxima(index):
    apply(index, blocks(1, 8, **FULL), blocks(2, 3, **WINDOW), blocks(6, 6, **WINDOW), blocks(8, 8, **WINDOW))
    # The window group's own best is block 8 or 6; only block 3 has a whole window before it.
    assert reuse(index) == 12
    apply(index, blocks(7, 7, **WINDOW))
    assert reuse(index) == 32


def test_a_window_that_starts_with_the_prompt_may_be_short(index):
    apply(index, blocks(1, 8, **FULL), blocks(1, 1, **WINDOW))
    assert reuse(index) == 4


@pytest.mark.parametrize(("window_tokens", "expected"), [(1, 32), (4, 32), (5, 32), (6, 0), (9, 0)])
def test_a_window_that_begins_inside_a_block_needs_all_of_it(index, window_tokens, expected):
    """The next token is in its own window: of 5 tokens 4 lie before it (vLLM asks for ceil(4 / 4) blocks)."""
    apply(index, blocks(1, 8, **FULL), blocks(8, 8, **(WINDOW | {"window_tokens": window_tokens})))
    assert reuse(index) == expected


@pytest.mark.parametrize("checkpoint", [1, 4, 5, 8])
def test_a_recurrent_group_needs_a_checkpoint_exactly_at_the_boundary(index, checkpoint):
    apply(index, blocks(1, 8, **FULL), blocks(checkpoint, checkpoint, **STATE))
    assert reuse(index) == 4 * checkpoint


def test_a_checkpoint_beyond_full_attention_is_of_no_use(index):
    apply(index, blocks(1, 4, **FULL), blocks(2, 2, **STATE), blocks(6, 6, **STATE))
    assert reuse(index) == 8


def test_windows_and_checkpoints_must_meet_at_one_boundary(index):
    window = WINDOW | {"group_idx": 2}
    apply(index, blocks(1, 8, **FULL), blocks(3, 3, **STATE), blocks(7, 7, **STATE), blocks(1, 6, **window))
    assert reuse(index) == 12
    apply(index, blocks(7, 7, **window))
    assert reuse(index) == 28


def test_the_last_token_is_computed_in_hybrid_models_too(index):
    apply(index, blocks(1, 8, **WINDOW), blocks(1, 8, **FULL))
    assert reuse(index, PROMPT[:32]) == 28
    assert reuse(index, PROMPT[:4]) == 0
    apply(index, blocks(1, 8, **WINDOW), holder=B)
    assert reuse(index, PROMPT[:32], holder=B) == 28


def test_groups_of_different_block_sizes_meet_where_both_have_a_boundary(index):
    apply(index, blocks(1, 3, size=8, **STATE), blocks(1, 7, **FULL))
    assert reuse(index, PROMPT, 4, 8) == 24
    assert reuse(index, PROMPT, 8, 4) == 24
    apply(index, removed(3, group_idx=0))
    assert reuse(index, PROMPT, 4, 8) == 16


def test_a_holder_with_other_block_sizes_than_the_chain_is_not_named(index):
    apply(index, blocks(1, 3, size=8, **STATE), blocks(1, 8, **FULL))
    assert index.find_reuse(chain()) == {}
    assert index.block_sizes() == {4, 8}


def test_the_order_in_which_groups_are_told_does_not_matter(index):
    apply(index, blocks(1, 8, **FULL), blocks(7, 8, **WINDOW))
    apply(index, blocks(7, 8, **WINDOW), blocks(1, 8, **FULL), holder=B)
    assert index.find_reuse(chain()) == {A: 32, B: 32}


def test_a_change_in_another_group_is_told_as_touched(index):
    change = apply(index, blocks(1, 8, **FULL), blocks(7, 8, **WINDOW))[1]
    assert (change.stored, change.touched) == ((), chain().hashes[6:])
    change = apply(index, removed(7, group_idx=0))[0]
    assert (change.removed, change.touched) == ((), chain().hashes[6:7])


def test_copies_are_counted_in_each_group(index):
    apply(index, blocks(1, 8, **FULL), blocks(7, 8, **WINDOW), blocks(8, 8, **WINDOW))
    apply(index, removed(8, group_idx=0))
    assert reuse(index) == 32
    apply(index, removed(8, group_idx=0))
    assert reuse(index) == 0


def test_a_clear_empties_every_group(index):
    apply(index, blocks(1, 8, **FULL), blocks(7, 8, **WINDOW), AllBlocksCleared(), blocks(1, 8, **FULL))
    assert reuse(index) == 0
    apply(index, blocks(7, 8, **WINDOW))
    assert reuse(index) == 32


def test_after_a_clear_a_window_group_alone_is_no_model_of_its_own(index):
    apply(index, blocks(1, 8, **FULL), blocks(7, 8, **WINDOW), AllBlocksCleared(), blocks(1, 8, **WINDOW))
    assert reuse(index) == 0


# Window groups as vLLM reports them: tokens of a whole step, names of the blocks that were kept.


def test_the_last_blocks_of_a_step_are_the_named_ones(index):
    apply(index, blocks(1, 8, listed=2, **WINDOW), blocks(1, 8, **FULL))
    assert reuse(index) == 32
    assert apply(index, removed(7, group_idx=0))[0].unknown_removals == 0
    assert apply(index, removed(6, group_idx=0))[0].unknown_removals == 1


def test_a_step_of_which_no_block_was_kept_changes_nothing(index):
    apply(index, blocks(1, 6, listed=2, **WINDOW), blocks(1, 6, **FULL))
    change = apply(index, blocks(7, 7, listed=0, **WINDOW), blocks(7, 7, **FULL))[0]
    assert (change.touched, change.refused, change.orphaned) == ((), 0, 0)
    assert reuse(index) == 24


def test_a_parent_that_only_another_group_stored_is_found(index):
    apply(index, blocks(1, 4, listed=0, **WINDOW), blocks(1, 4, **FULL))
    apply(index, blocks(5, 8, listed=2, **WINDOW), blocks(5, 8, **FULL))
    assert reuse(index) == 32


def test_a_model_with_a_window_in_every_layer_is_predicted(index):
    apply(index, blocks(1, 6, listed=2, **WINDOW))
    assert reuse(index) == 24
    assert reuse(index, (*PROMPT[:20], *PROMPT[:12])) == 0
    apply(index, blocks(7, 7, **WINDOW), removed(5, group_idx=0))
    assert reuse(index) == 28
    apply(index, removed(6, group_idx=0))
    assert reuse(index) == 0


def test_a_run_without_names_goes_on_in_a_model_with_a_window_in_every_layer(index):
    apply(index, blocks(1, 4, listed=0, **WINDOW), blocks(5, 8, listed=2, **WINDOW))
    assert reuse(index) == 32


def test_a_group_that_full_attention_reports_in_full_has_the_last_word_on_a_salt(index):
    """A salt stands among the first block's keys, which a window group that dropped it does not name."""
    salted = {"extra_keys": (("s",), *(None,) * 7)}
    apply(index, blocks(1, 8, listed=2, **WINDOW, extra_keys=(None, None)), blocks(1, 8, **FULL, **salted))
    assert reuse(index, cache_salt="s") == 32
    assert reuse(index) == 0


def test_A09_a_window_group_while_a_group_below_it_is_unknown_is_no_reusable_prefix(index):
    apply(index, blocks(1, 8, **(WINDOW | {"group_idx": 1})))
    assert reuse(index) == 0
    apply(index, blocks(1, 8, **(FULL | {"group_idx": 0})))
    assert reuse(index) == 32


def test_a_block_size_or_kind_that_changes_is_refused_and_counted(index):
    apply(index, blocks(1, 8, **FULL), blocks(1, 8, **WINDOW))
    wide = apply(index, blocks(1, 2, size=8, **FULL))[0]
    other = apply(index, blocks(1, 2, **(STATE | {"group_idx": 1})))[0]
    assert (wide.refused, other.refused) == (2, 2)
    assert reuse(index) == 32


def test_lost_events_take_the_credit_of_every_group(index):
    apply(index, blocks(1, 8, **FULL), blocks(7, 8, **WINDOW))
    index.doubt(A)
    apply(index, blocks(8, 8, **FULL))
    # The block proves full attention before it; that its window is still there nobody said.
    assert reuse(index) == 0
    apply(index, blocks(7, 8, **WINDOW))
    assert reuse(index) == 32


# Dialects that report full attention only.

GEMMA = Layout((GroupLayout(kind="full_attention"), GroupLayout(kind="sliding_window", window_tokens=8)))
QWEN = Layout((GroupLayout(kind="full_attention"), GroupLayout(kind="mamba")))


def declared(index, layout):
    index.attach(A, model="m", layout=layout)
    return index


@pytest.mark.usefixtures("layout")
def test_a_declared_checkpoint_is_believed_at_the_end_of_what_a_step_stored(index):
    apply(declared(index, QWEN), blocks(1, 3), blocks(4, 6))
    assert reuse(index) == 24
    assert reuse(index, PROMPT[:21]) == 12
    assert reuse(index, PROMPT[:12]) == 0


@pytest.mark.usefixtures("layout")
def test_a_declared_window_is_believed_at_the_end_of_what_a_step_stored(index):
    apply(declared(index, GEMMA), blocks(1, 6))
    assert reuse(index) == 24
    assert reuse(index, PROMPT[:21]) == 0


@pytest.mark.usefixtures("layout")
def test_declared_checkpoints_lie_on_their_grid(index):
    layout = Layout((GroupLayout(kind="full"), GroupLayout(kind="state", checkpoint_tokens=8)))
    apply(declared(index, layout), blocks(1, 5))
    assert reuse(index) == 16
    apply(index, blocks(6, 7))
    assert reuse(index) == 24


@pytest.mark.usefixtures("layout")
def test_a_belief_goes_with_the_full_attention_block(index):
    apply(declared(index, QWEN), blocks(1, 4), blocks(5, 6), removed(6))
    assert reuse(index) == 16
    apply(index, blocks(5, 6))
    assert reuse(index) == 24
    apply(index, AllBlocksCleared())
    assert reuse(index) == 0


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("layout", [QWEN, GEMMA])
def test_an_answer_lowers_what_is_believed_above_it(index, layout):
    apply(declared(index, layout), blocks(1, 4), blocks(5, 8))
    assert reuse(index) == 32
    assert index.correct(A, chain(), 16) == 16
    assert index.correct(A, chain(), 0) == 0
    assert reuse(index) == 0


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("layout", [QWEN, GEMMA])
def test_an_answer_raises_belief_no_higher_than_full_attention(index, layout):
    apply(declared(index, layout), blocks(1, 6), removed(6))
    assert index.correct(A, chain(), 12) == 12
    assert index.correct(A, chain(), 24) <= 20
    assert index.correct(A, chain(), 1_000) <= 20


@pytest.mark.usefixtures("layout")
def test_an_answer_changes_nothing_where_every_group_is_reported(index):
    apply(declared(index, GEMMA), blocks(7, 8, **WINDOW), blocks(1, 8, **FULL))
    assert index.correct(A, chain(), 8) == 32
    apply(index, blocks(1, 4), holder=B)
    assert index.correct(B, chain(), 0) == 16


@pytest.mark.usefixtures("layout")
def test_a_layout_of_an_unknown_kind_gives_no_credit(index):
    layout = Layout((GroupLayout(kind="full"), GroupLayout(kind="something_new")))
    apply(declared(index, layout), blocks(1, 4))
    assert (reuse(index), index.is_modelled(A)) == (0, False)


# A kind of one's own.


class Chunked:
    """Attention within chunks of 8 tokens: everything since the chunk's start."""

    name = "chunked"
    recovery = Recovery.REBUILD

    def find_start(self, end_tokens: int) -> int:
        return (end_tokens - 1) // 8 * 8


@pytest.mark.usefixtures("components")
def test_a_fourth_component_is_registered_without_touching_the_core(kind):
    index = kind(registry=STANDARD.with_kind("chunked_local_attention", lambda _: Chunked()))
    index.attach(A, model="m")
    chunked = {"group_idx": 0, "group_kind": "chunked_local_attention"}
    apply(index, blocks(1, 8, **FULL), blocks(3, 3, **chunked), blocks(6, 6, **chunked), blocks(8, 8, **chunked))
    assert reuse(index) == 12
    apply(index, blocks(5, 5, **chunked))
    assert reuse(index) == 24
    assert index.is_modelled(A)
    index.check_invariants()
