"""What dump and load must do: the same answers from another index, and the same future."""

import pytest
from index_words import FULL, PROMPT, WINDOW, A, B, blocks, chain, removed
from msgspec.structs import replace

from prefix_index.layout import GroupLayout, Layout
from wire.events import Medium
from wire.snapshot import BlockRecord, to_records, to_runs

pytestmark = pytest.mark.usefixtures("dump")


@pytest.fixture
def start(kind):
    """Makes an index with A attached as told; all must be sound at the end."""
    made = []

    def start(**terms):
        index = kind()
        index.attach(A, model="m", **terms)
        made.append(index)
        return index

    yield start
    for index in made:
        index.check_invariants()


def moved(index, fresh):
    """The fresh index after it took what the other one holds of A."""
    assert fresh.load(A, index.dump(A)) == len(held(index))
    return fresh


def held(index):
    """Records of what A holds."""
    return [record for run in index.dump(A) for record in to_records(run) if record.copies]


def test_a_loaded_index_goes_on_as_the_dumped_one_would(start):
    index = start()
    for event in (blocks(1, 4), blocks(4, 4), removed(2)):
        index.apply(A, event)
    fresh = moved(index, start())
    for each in (index, fresh):
        assert each.find_reuse(chain()) == {A: 4}
        assert each.apply(A, removed(4)).removed == ()
        assert each.apply(A, blocks(2, 2)).stored == chain().hashes[1:2]
        assert each.apply(A, blocks(5, 5)).orphaned == 0
        assert each.find_reuse(chain()) == {A: 20}
        assert each.apply(A, removed(4)).removed == chain().hashes[3:4]


def test_parents_come_before_their_children(start):
    index = start()
    index.apply(A, blocks(3, 6))
    index.apply(A, blocks(1, 2))
    names = [record.engine_hash for record in held(index)]
    assert names == [1, 2, 3, 4, 5, 6]


def test_a_record_says_all_that_an_engine_said(start):
    index = start()
    index.apply(A, blocks(1, 2, **WINDOW))
    assert held(index)[-1] == BlockRecord(
        engine_hash=2,
        canonical_parent=chain().hashes[0],
        canonical_hash=chain().hashes[1],
        block_tokens=4,
        medium=Medium.DEVICE,
        group_idx=0,
        group_kind="sliding_window",
        window_tokens=8,
        copies=1,
        position=1,
    )


@pytest.mark.usefixtures("groups")
def test_an_empty_group_still_decides(start):
    index = start()
    for event in (blocks(1, 8, **FULL), blocks(8, 8, **WINDOW), removed(8, group_idx=0)):
        index.apply(A, event)
    assert index.find_reuse(chain()) == moved(index, start()).find_reuse(chain()) == {}


@pytest.mark.usefixtures("groups")
def test_an_unknown_group_still_takes_all_credit(start):
    index = start()
    index.apply(A, blocks(1, 8))
    index.apply(A, blocks(1, 1, group_idx=1, group_kind="something_new"))
    fresh = moved(index, start())
    assert (fresh.find_reuse(chain()), fresh.is_modelled(A)) == ({}, False)


def test_doubted_blocks_stay_doubted_until_proved(start):
    index = start()
    index.apply(A, blocks(1, 4))
    index.doubt(A)
    fresh = moved(index, start())
    assert fresh.find_reuse(chain()) == {}
    assert fresh.block_count(A) == 0
    fresh.apply(A, blocks(5, 5))
    assert fresh.find_reuse(chain()) == {A: 20}


@pytest.mark.usefixtures("tiers")
def test_tiers_and_pools_come_back(start):
    index = start(pools=("p",))
    for event in (blocks(1, 1), blocks(1, 2, medium=Medium.HOST), blocks(1, 3, medium=Medium.EXTERNAL)):
        index.apply(A, event)
    fresh = moved(index, start(pools=("p",)))
    assert fresh.find_alternatives(chain(), A) == index.find_alternatives(chain(), A)
    assert fresh.drop_pool("p") == 3


@pytest.mark.usefixtures("layout")
def test_beliefs_come_back(start):
    layout = Layout((GroupLayout(kind="full"), GroupLayout(kind="state")))
    index = start(layout=layout)
    index.apply(A, blocks(1, 3))
    index.apply(A, blocks(4, 6))
    index.correct(A, chain(), 12)
    fresh = moved(index, start(layout=layout))
    assert index.find_reuse(chain()) == fresh.find_reuse(chain()) == {A: 12}


def test_parked_blocks_have_no_record(start):
    index = start()
    index.apply(A, blocks(3, 4))
    assert held(index) == []


def test_records_that_cannot_be_are_left_out(start):
    index = start()
    index.apply(A, blocks(1, 2))
    good = held(index)
    one, _ = good
    bad = [
        BlockRecord(9, 1, 5, 8, Medium.DEVICE, None, None, None, 1, 1),
        BlockRecord(9, 1, 5, 4, "MOON", None, None, None, 1, 1),
        BlockRecord(1, None, 5, 4, Medium.DEVICE, None, None, None, 1, 0),
        one,
    ]
    fresh = start()
    assert fresh.load(A, to_runs([*good, *bad])) == 2
    columns = next(to_runs(good))
    assert fresh.load(A, [replace(columns, copies=b""), replace(columns, block_tokens=0)]) == 0
    assert fresh.find_reuse(chain()) == {A: 8}


def test_nobody_who_is_not_attached_is_dumped_or_loaded(start):
    index = start()
    index.apply(A, blocks(1, 2))
    assert list(index.dump(B)) == []
    assert index.load(B, list(index.dump(A))) == 0
    assert index.find_reuse(chain(PROMPT)) == {A: 8}
