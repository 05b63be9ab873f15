"""The compiled module: our own XXH3-64 against the xxhash library."""

import subprocess
import sys
from array import array
from importlib import import_module
from random import Random

import pytest
import xxhash

from prefix_index.hashing import native_available
from tests.waiting import PATIENCE_S
from wire.block_hash import block_hashes

pytestmark = pytest.mark.skipif(not native_available(), reason="the native module was not built (no C++ compiler)")


@pytest.fixture(scope="module")
def core():
    return import_module("prefix_index._core")


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1, None], ids=["zero", "one", "largest", "random"])
def test_our_xxh3_equals_the_library_for_every_length_up_to_1100(core, rng: Random, seed):
    for size in range(1_101):
        data = rng.randbytes(size)
        chosen = rng.getrandbits(64) if seed is None else seed
        assert core.xxh3_64(data, chosen) == xxhash.xxh3_64_intdigest(data, chosen), size


def test_our_xxh3_equals_the_library_for_long_inputs(core, rng: Random):
    for size in (1_024, 1_025, 2_048, 4_095, 65_537):
        data = rng.randbytes(size)
        assert core.xxh3_64(data, 7) == xxhash.xxh3_64_intdigest(data, 7)


@pytest.mark.parametrize("block_tokens", [1, 2, 14, 16, 30, 58, 59, 64, 256, 1_056])
def test_chains_equal_python_for_every_range_of_the_algorithm(core, rng: Random, block_tokens):
    tokens = array("I", (rng.getrandbits(32) for _ in range(3 * block_tokens + 5)))
    assert core.block_hashes(tokens, block_tokens, 9) == block_hashes(tokens, block_tokens, 9)


def test_wrong_arguments_are_refused(core):
    with pytest.raises(ValueError, match="block_tokens"):
        core.block_hashes(array("I", [1]), 0, 0)
    with pytest.raises(TypeError):
        core.block_hashes(array("f", [1.0]), 1, 0)
    assert core.block_hashes(array("I"), 4, 0) == []


#: Threads are within the index while the interpreter ends around them.
LEAVING = """
from threading import Event, Thread
from prefix_index.native import NativePrefixIndex
from wire.dialects import vllm
from wire.events import BlockStored, EventBatch
from wire.ids import Target

holder, index = Target("a", 0), NativePrefixIndex()
index.attach(holder, model="m")
blocks = [
    BlockStored(block_hashes=(n,), parent_block_hash=n - 1 or None, token_ids=(n,), block_tokens=1)
    for n in range(1, 5_000)
]
payload = vllm.encode_batch(EventBatch(ts_s=1.0, events=tuple(blocks)), "0.32")

def work(begun):
    while True:
        index.apply_payloads(holder, [payload])
        index.clear(holder)
        begun.set()

events = [Event(), Event(), Event()]
for event in events:
    Thread(target=work, args=(event,), daemon=True).start()
for event in events:
    event.wait()
"""


def test_an_interpreter_that_ends_while_threads_use_the_index_ends_well():
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, timeout=PATIENCE_S, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
