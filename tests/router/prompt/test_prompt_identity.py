"""Blocks of a prompt are those of the engine's events: salt, adapter and media enter both alike."""

import subprocess
import sys
from array import array

import pytest

from prefix_index import NaivePrefixIndex, make_index
from router.prompt import Prompter, PromptInput, Unrenderable
from router.prompt.media import find_known_text, read_media
from router.prompt.request import MediaItem
from tests.router.prompt.real_tokenizers import TOY, load_prompter
from tests.waiting import PATIENCE_S
from wire.events import BlockStored
from wire.ids import Target, WorkerId

X, Y = Target(WorkerId("x"), 0), Target(WorkerId("y"), 0)
IDS = list(range(100, 118))
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.fixture(params=[NaivePrefixIndex, make_index])
def index(request):
    index = request.param()
    for holder in (X, Y):
        index.attach(holder, model="m")
    return index


def stored(**more):
    return BlockStored(
        block_hashes=(1, 2, 3, 4), parent_block_hash=None, token_ids=tuple(IDS[:16]), block_tokens=4, **more
    )


def chain(**fields):
    prompt = load_prompter("toy").prepare(PromptInput(prompt=IDS, **fields))
    return Prompter.find_chain(prompt, block_tokens=4, model="m")


def features(key, offset=5, length=6):
    return {"mm_hashes": {"image": [key]}, "mm_placeholders": {"image": [{"offset": offset, "length": length}]}}


def test_A17_a_prompt_with_a_salt_finds_only_what_was_stored_under_it(index):
    index.apply(X, stored(cache_salt="s1"))
    index.apply(Y, stored(extra_keys=(("s2",), None, None, None)))
    assert index.find_reuse(chain(cache_salt="s1")) == {X: 16}
    assert index.find_reuse(chain(cache_salt="s2")) == {Y: 16}
    assert index.find_reuse(chain()) == {}


def test_A18_an_image_is_found_with_its_key_and_another_only_up_to_the_text_before(index):
    # The image stands for tokens 5 to 10: blocks 1 and 2 overlap it.
    index.apply(X, stored(extra_keys=(None, (("a", 1)), (("a", -3)), None)))
    assert index.find_reuse(chain(features=features("a"))) == {X: 16}
    assert index.find_reuse(chain(features=features("b"))) == {X: 4}
    assert index.find_reuse(chain()) == {X: 4}
    assert index.find_reuse(chain(features=features("a", offset=4))) == {X: 4}


def test_A18_a_chat_is_credited_up_to_its_first_message_with_media():
    prompter = load_prompter("toy")
    head = [{"role": "system", "content": "look " * 40}, {"role": "user", "content": "now " * 40}]
    asked = [*head, {"role": "user", "content": [{"type": "text", "text": "what is it?"}, IMAGE]}]
    plain = prompter.prepare(PromptInput(messages=[*head, {"role": "user", "content": "more"}]))
    prompt = prompter.prepare(PromptInput(messages=asked))
    known = len(prompt.token_ids)
    assert plain.token_ids[:known] == prompt.token_ids
    assert 80 < known < prompt.token_count
    chains = [Prompter.find_chain(one, block_tokens=4, model="m") for one in (plain, prompt)]
    assert chains[0].hashes[: known // 4] == chains[1].hashes


def test_A18_an_image_in_the_first_message_leaves_next_to_nothing():
    prompt = load_prompter("toy").prepare(PromptInput(messages=[{"role": "user", "content": [IMAGE]}]))
    assert Prompter.find_chain(prompt, block_tokens=4, model="m").hashes == ()


@pytest.mark.parametrize(
    "said",
    [
        "x",
        {},
        {"mm_hashes": {"image": ["a"]}, "mm_placeholders": {}},
        {"mm_hashes": {"image": ["a"]}, "mm_placeholders": {"image": []}},
        {"mm_hashes": {"image": [1]}, "mm_placeholders": {"image": [{"offset": 0, "length": 1}]}},
        {"mm_hashes": {"image": ["a"]}, "mm_placeholders": {"image": [{"offset": 15, "length": 9}]}},
        {"mm_hashes": {"image": ["a" * 600]}, "mm_placeholders": {"image": [{"offset": 0, "length": 1}]}},
        {"mm_hashes": {"image": ["a"] * 2_000}, "mm_placeholders": {"image": [{"offset": 0, "length": 1}] * 2_000}},
    ],
)
def test_places_of_media_that_make_no_sense_earn_nothing(said):
    assert read_media(said, 18) is None
    assert load_prompter("toy").prepare(PromptInput(prompt=IDS, features=said)) == Unrenderable("multimodal")


def test_items_are_read_in_the_order_they_stand_in():
    said = {
        "mm_hashes": {"image": ["b"], "audio": ["a"]},
        "mm_placeholders": {"image": [{"offset": 9, "length": 2}], "audio": [{"offset": 1, "length": 3}]},
    }
    assert read_media(said, 18) == (MediaItem("a", 1, 3), MediaItem("b", 9, 2))


def test_text_before_media_is_what_does_not_depend_on_it():
    assert find_known_text(["a b \u241e0d0a7f\u241e c", "a b \u241ef1e2d3\u241e c"]) == "a b "
    assert find_known_text(["a 12 \u241e0d0a7f\u241e c", "a 13 \u241ef1e2d3\u241e c"]) == "a 1"


def test_A20_two_processes_hash_a_prompt_alike():
    code = (
        "import sys; from pathlib import Path; from router.prompt import PromptInput, Prompter;"
        "prompter = Prompter.load(Path(sys.argv[1]));"
        "prompt = prompter.prepare(PromptInput(prompt='the same words ' * 20, cache_salt='s'));"
        "print(prompter.find_chain(prompt, block_tokens=8, model='m').hashes)"
    )
    seen = [
        subprocess.run(
            [sys.executable, "-c", code, str(TOY)], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True, timeout=PATIENCE_S,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert seen[0] == seen[1]
    assert len(seen[0]) > 100


def test_ids_of_a_prompt_given_as_ids_are_taken_as_they_are():
    assert load_prompter("toy").prepare(PromptInput(prompt=IDS)).token_ids == array("I", IDS)
