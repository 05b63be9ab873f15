"""SGLang's own radix cache and event publisher, loaded from its wheel module by module, on CPU tensors.

The tree needs no pool of tensors when it is made for simulation, so that the modules of pools, metrics and device
helpers, which want a GPU's libraries, stand empty here. Everything that decides or publishes is SGLang's.
"""

import importlib
import sys
import types
import zipfile
from contextlib import contextmanager

#: Imported for type names only.
EMPTY = (
    "sglang.srt.mem_cache.memory_pool",
    "sglang.srt.mem_cache.memory_pool_host",
    "sglang.srt.observability",
    "sglang.srt.observability.metrics_collector",
    "sglang.srt.utils",
)
PACKAGES = ("sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.srt.disaggregation")


class _Empty(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return object


@contextmanager
def load_sglang(wheel, folder):
    """The modules `kv_events` and `radix_cache` of a wheel.

    Raises:
        ImportError: They cannot be loaded here.
    """
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    before = set(sys.modules)
    try:
        for name in PACKAGES:
            package = types.ModuleType(name)
            package.__path__ = [str(folder.joinpath(*name.split(".")))]
            sys.modules[name] = package
        for name in EMPTY:
            sys.modules[name] = _Empty(name)
        yield (
            importlib.import_module("sglang.srt.disaggregation.kv_events"),
            importlib.import_module("sglang.srt.mem_cache.radix_cache"),
            importlib.import_module("sglang.srt.mem_cache.base_prefix_cache"),
        )
    finally:
        for name in set(sys.modules) - before:
            if name.startswith("sglang"):
                del sys.modules[name]
