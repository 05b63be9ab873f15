"""Synthetic and shortened text: deterministic, and prefixes stay prefixes."""

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engine_shim.engine.tokenizer import TOY_FOLDER
from simulator.traces.words import WORDS, block_text, join_blocks, thin_text


def test_there_are_256_different_words():
    assert len(set(WORDS)) == len(WORDS) == 256


def test_equal_keys_give_equal_text_and_other_keys_other_text():
    assert block_text("a/1", 16) == block_text("a/1", 16)
    assert block_text("a/1", 16) != block_text("a/2", 16)


@given(st.text(max_size=20), st.integers(0, 300))
def test_a_block_has_the_words_it_was_asked_for(key, count):
    assert len(block_text(key, count).split()) == count


def test_fractions_of_a_word_are_met_in_the_mean():
    words = sum(len(block_text(f"k{serial}", 0.3).split()) for serial in range(2_000))
    assert 500 < words < 700


def test_a_word_is_one_token_of_the_toy_tokenizer():
    tokenizer = Tokenizer.from_file(str(TOY_FOLDER / "tokenizer.json"))
    text = " " + join_blocks(block_text(str(serial), 64) for serial in range(50))
    assert len(tokenizer.encode(text, add_special_tokens=False).ids) == 50 * 64


@given(st.text(max_size=700), st.text(max_size=700), st.floats(0.01, 1))
def test_shortened_text_keeps_prefixes_prefixes(head, tail, ratio):
    assert thin_text(head + tail, ratio).startswith(thin_text(head, ratio))


@given(st.text(max_size=2_000))
def test_a_ratio_of_one_keeps_the_text(text):
    assert thin_text(text, 1.0) == text
