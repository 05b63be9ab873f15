"""A worker that comes back with another model or tokenizer: its prompts are made anew, nothing of before is kept."""

import json

import pytest

from prefix_index import block_hashes
from router.prompt import ModelPrompts, PromptCatalogue, Prompter, PromptInput
from tests.router.prompt.real_tokenizers import TOY
from wire.block_hash import namespace_seed

#: Long enough that the conversation is kept.
FIRST = [{"role": "user", "content": "first question " * 1_200}]
SECOND = [*FIRST, {"role": "assistant", "content": "an answer"}, {"role": "user", "content": "and then?"}]
#: A template that writes the same roles in another way.
OTHER_TEMPLATE = (
    "{% for m in messages %}<|im_start|>[{{ m.role }}]\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>[assistant]\n{% endif %}"
)


@pytest.fixture
def catalogue():
    catalogue = PromptCatalogue(block_sizes=lambda: {4})
    yield catalogue
    catalogue.close()


@pytest.fixture
def folder(tmp_path):
    """The toy tokenizer, whose files a test may change."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((TOY / name).read_bytes())
    return tmp_path


def ask(messages):
    return PromptInput(messages_json=json.dumps(messages).encode())


async def hash_prompt(catalogue, name, messages):
    request = ask(messages)
    prepared = await catalogue.prepare(name, request, len(request.messages_json))
    return prepared.plain.hashes


def expect(prompter, base, messages, adapter=None):
    """Hashes of a prompt rendered and tokenized in full."""
    prompt = prompter.prepare(PromptInput(messages=messages))
    return tuple(block_hashes(prompt.token_ids, 4, namespace_seed(base, adapter=adapter)))


async def test_a_name_that_comes_back_with_another_template_is_rendered_by_that_one(catalogue, folder):
    catalogue.put("m", ModelPrompts(Prompter.load(folder), "m"))
    before = await hash_prompt(catalogue, "m", FIRST)
    (folder / "chat_template.jinja").write_text(OTHER_TEMPLATE)
    catalogue.put("m", ModelPrompts(Prompter.load(folder), "m"))
    # The conversation that was begun before goes on, with none of what was known of it.
    after = await hash_prompt(catalogue, "m", SECOND)
    assert after == expect(Prompter.load(folder), "m", SECOND)
    assert not set(before) & set(after)


async def test_a_name_that_comes_back_with_another_vocabulary_is_tokenized_by_that_one(catalogue, folder):
    catalogue.put("m", ModelPrompts(Prompter.load(folder), "m"))
    await hash_prompt(catalogue, "m", FIRST)
    description = json.loads((folder / "tokenizer.json").read_bytes())
    vocabulary = description["model"]["vocab"]
    last, other = list(vocabulary)[-2:]
    vocabulary[last], vocabulary[other] = vocabulary[other], vocabulary[last]
    description["model"]["merges"] = description["model"]["merges"][:1_000]
    (folder / "tokenizer.json").write_text(json.dumps(description))
    catalogue.put("m", ModelPrompts(Prompter.load(folder), "m"))
    assert await hash_prompt(catalogue, "m", SECOND) == expect(Prompter.load(folder), "m", SECOND)


async def test_a_name_that_comes_back_with_equal_files_keeps_what_is_known(catalogue, folder):
    first = Prompter.load(folder)
    catalogue.put("m", ModelPrompts(first, "m"))
    await hash_prompt(catalogue, "m", FIRST)
    # Another worker's copy of the files: the same content elsewhere.
    catalogue.put("m", ModelPrompts(Prompter.load(TOY), "m"))
    assert catalogue.find("m").prompter is first
    request = ask(SECOND)
    assert first.foresee(request, len(request.messages_json)).lookup.turn is not None


async def test_a_prompt_of_a_model_that_became_another_ones_adapter_has_that_namespace(catalogue, folder):
    prompter = Prompter.load(folder)
    catalogue.put("m", ModelPrompts(prompter, "m"))
    assert await hash_prompt(catalogue, "m", FIRST) == expect(prompter, "m", FIRST)
    catalogue.put("m", ModelPrompts(prompter, "base", "m"))
    assert await hash_prompt(catalogue, "m", FIRST) == expect(prompter, "base", FIRST, "m")
    catalogue.put("m", ModelPrompts(prompter, "base"))
    assert await hash_prompt(catalogue, "m", FIRST) == expect(prompter, "base", FIRST)


async def test_a_prompt_that_was_prepared_before_the_change_is_hashed_again_as_it_was(folder):
    sizes = set()
    catalogue = PromptCatalogue(block_sizes=lambda: sizes)
    before = Prompter.load(folder)
    catalogue.put("m", ModelPrompts(before, "m"))
    prepared = await catalogue.prepare("m", ask(FIRST), 100)
    (folder / "chat_template.jinja").write_text(OTHER_TEMPLATE)
    catalogue.put("m", ModelPrompts(Prompter.load(folder), "m"))
    sizes.add(4)
    (chain,) = prepared.rehash()
    assert chain.hashes == expect(before, "m", FIRST)
    catalogue.close()


def test_prompters_that_were_not_made_of_files_are_told_apart_by_themselves(folder):
    made = [ModelPrompts(Prompter(Prompter.load(folder).tokenizer, None), "m") for _ in range(2)]
    assert made[0].makes_the_same(made[0])
    assert not made[0].makes_the_same(made[1])
