"""Text of a growing answer: never a broken character, never a stop string, nothing lost."""

from hypothesis import given
from hypothesis import strategies as st

from engine_shim.engine.tokenizer import TOY_FOLDER, OutputText, Tokenizer

TOY = Tokenizer(TOY_FOLDER)
ids = st.lists(st.integers(0, TOY.vocabulary_tokens - 1), max_size=40)


def whole_text(token_ids: list[int]) -> str:
    known = (TOY.token_bytes[token_id] or b"" for token_id in token_ids)
    return b"".join(known).decode("utf-8", "replace")


def push_all(output: OutputText, token_ids: list[int]) -> tuple[str, str | None]:
    text = ""
    for token_id in token_ids:
        piece = output.push(token_id)
        text += piece.text
        if piece.stop is not None:
            return text, piece.stop
    rest = output.finish()
    return text + rest.text, rest.stop


@given(ids)
def test_pieces_add_up_to_the_whole_text(token_ids):
    assert push_all(OutputText(TOY.token_bytes), token_ids) == (whole_text(token_ids), None)


@given(st.text())
def test_no_piece_of_a_sound_text_holds_a_broken_character(text):
    output = OutputText(TOY.token_bytes)
    pieces = [output.push(token_id).text for token_id in TOY.encode(text)]
    assert "".join(pieces) + output.finish().text == whole_text(TOY.encode(text))
    if "\ufffd" not in text:
        assert all("\ufffd" not in piece for piece in pieces)


def test_a_character_comes_with_its_last_byte():
    letters = [TOY.encode(chr(0x20))[0]]
    byte_ids = [TOY.token_bytes.index(bytes([byte])) for byte in "🐦".encode()]
    output = OutputText(TOY.token_bytes)
    assert [output.push(token_id).text for token_id in [*letters, *byte_ids]] == [" ", "", "", "", "🐦"]


def test_a_character_cut_short_ends_as_one_replacement():
    byte_ids = [TOY.token_bytes.index(bytes([byte])) for byte in "🐦".encode()[:3]]
    assert push_all(OutputText(TOY.token_bytes), byte_ids) == ("\ufffd", None)


@given(ids, st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=3))
def test_text_ends_before_the_first_stop_string(token_ids, stops):
    text, stop = push_all(OutputText(TOY.token_bytes, stops), token_ids)
    whole = whole_text(token_ids)
    assert whole.startswith(text)
    if stop is None:
        assert text == whole
    else:
        assert whole[len(text) :].startswith(stop)
    assert not any(found in text for found in stops)


@given(st.text(alphabet="abc", max_size=30), st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=3))
def test_stop_strings_over_token_borders_are_found(text, stops):
    token_ids = [TOY.token_bytes.index(character.encode()) for character in text]
    seen, stop = push_all(OutputText(TOY.token_bytes, stops), token_ids)
    if (stop is None) != (not any(found in text for found in stops)):
        raise AssertionError(text)
    assert seen == text if stop is None else text.startswith(seen + stop)


def test_text_that_may_begin_a_stop_string_is_held_back_until_it_does_not():
    token_ids = [TOY.token_bytes.index(character) for character in (b"x", b"S", b"T", b"A", b"R", b"y")]
    output = OutputText(TOY.token_bytes, ["STOP", "START"])
    assert [output.push(token_id).text for token_id in token_ids] == ["x", "", "", "", "", "STARy"]


def test_special_tokens_are_no_text():
    assert push_all(OutputText(TOY.token_bytes), [TOY.eos_id, 1, 0]) == ("", None)
