"""A wrong prediction counts as raced only where something that happened explains it."""

from prefix_index import BlockChain
from prefix_index.trust import Trust
from router.events.changes import Evidence
from router.proxy.prediction import MAX_PEERS, Prediction, cut_chain, is_raced

CHAIN = BlockChain(block_tokens=16, hashes=(1, 2, 3, 4), token_count=70)


def predict(tokens, chain=CHAIN):
    return Prediction(chain=chain, predicted_tokens=tokens, trust=Trust.EXACT, position=0, peers=[])


def test_an_equal_count_needs_no_explanation():
    assert not is_raced(predict(32), 32, Evidence(cleared=True))


def test_more_than_predicted_is_explained_by_the_next_block_having_come():
    assert is_raced(predict(32), 48, Evidence(stored=frozenset({3})))
    assert is_raced(predict(32), 64, Evidence(stored=frozenset({3})))
    assert not is_raced(predict(32), 48, Evidence(stored=frozenset({1, 2, 4})))
    assert not is_raced(predict(32), 48, Evidence(removed=frozenset({3})))


def test_less_than_predicted_is_explained_by_that_block_having_gone():
    assert is_raced(predict(48), 32, Evidence(removed=frozenset({3})))
    assert not is_raced(predict(48), 32, Evidence(removed=frozenset({4})))
    assert not is_raced(predict(48), 32, Evidence(stored=frozenset({3})))
    assert is_raced(predict(48), 0, Evidence(cleared=True))


def test_a_window_block_that_came_or_went_between_the_counts_explains_them():
    assert is_raced(predict(64), 16, Evidence(lost=frozenset({3})))
    assert is_raced(predict(16), 64, Evidence(gained=frozenset({3})))
    # What lies outside of the two counts decides nothing, nor does what went the other way.
    assert not is_raced(predict(64), 16, Evidence(lost=frozenset({1})))
    assert not is_raced(predict(16), 32, Evidence(gained=frozenset({3})))
    assert not is_raced(predict(64), 16, Evidence(gained=frozenset({3})))


def test_evidence_counts_in_the_block_size_of_the_rank():
    chain = BlockChain(16, (1, 2, 3, 4), 70, (BlockChain(32, (11, 12), 70),))
    assert is_raced(predict(32, chain), 64, Evidence(stored=frozenset({12})))
    assert not is_raced(predict(32, chain), 64, Evidence(stored=frozenset({11})))
    prediction = predict(0, chain)
    prediction.add_peer(predict(0, BlockChain(16, (1, 7), 70, (BlockChain(32, (11,), 70),))))
    assert is_raced(prediction, 32, Evidence())


def test_a_chain_is_cut_in_every_block_size():
    chain = BlockChain(16, (1, 2, 3, 4), 70, (BlockChain(32, (11, 12), 70),))
    assert cut_chain(chain, 48) == BlockChain(16, (1, 2, 3), 49, (BlockChain(32, (11,), 49),))


def test_a_request_beside_it_explains_only_what_it_has_too():
    prediction = predict(16)
    prediction.add_peer(predict(0, BlockChain(block_tokens=16, hashes=(1, 2, 9), token_count=50)))
    assert is_raced(prediction, 32, Evidence())
    assert not is_raced(prediction, 48, Evidence())
    assert not is_raced(prediction, 0, Evidence())


def test_requests_with_another_head_are_no_peers_and_their_number_is_bounded():
    prediction = predict(0)
    prediction.add_peer(predict(0, BlockChain(block_tokens=16, hashes=(7, 2), token_count=40)))
    assert prediction.peers == []
    for _ in range(2 * MAX_PEERS):
        prediction.add_peer(predict(0))
    assert len(prediction.peers) == MAX_PEERS


def test_counts_beyond_the_chain_explain_nothing():
    assert not is_raced(predict(64), 96, Evidence(stored=frozenset({1, 2, 3, 4})))
    assert not is_raced(predict(0, None), 16, Evidence(cleared=True))
