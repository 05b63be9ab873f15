"""What the suites run over: kinds of index, each asked only for what it declares, and event loops."""

import asyncio

import pytest
import uvloop

from prefix_index import NaivePrefixIndex
from prefix_index.base import FEATURES
from prefix_index.hashing import native_available
from prefix_index.native import NativePrefixIndex

is_built = pytest.mark.skipif(not native_available(), reason="the native module was not built (no C++ compiler)")


KINDS = [NaivePrefixIndex, *(pytest.param(kind, marks=is_built) for kind in (NativePrefixIndex,))]


@pytest.fixture(params=KINDS, ids=["naive", "native"])
def kind(request):
    return request.param


def feature(name):
    """A fixture that skips the test for a kind of index which does not declare `name` in its `supports`."""
    assert name in FEATURES

    @pytest.fixture(name=name)
    def skip_without(kind):
        if name not in kind.supports:
            pytest.skip(f"{kind.__name__} does not declare {name!r}")

    return skip_without


groups = feature("groups")
tiers = feature("tiers")
layouts = feature("layout")
dumps = feature("dump")
caps = feature("caps")
components = feature("components")
generations = feature("generations")


def pytest_asyncio_loop_factories(config, item):
    """Contracts hold on the event loop of production and on the one that Python brings."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.SelectorEventLoop}
