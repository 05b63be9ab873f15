"""How much was done meanwhile, measured from outside: calls made and memory taken."""

import sys
import tracemalloc
from typing import Self


class Meter:
    """Counts the calls of functions, Python's and C's, and the memory taken at most."""

    def __enter__(self) -> Self:
        self.calls = 0
        self.peak_bytes = 0
        tracemalloc.start()
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self.peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    def _count(self, _frame: object, event: str, _argument: object) -> None:
        self.calls += event in ("call", "c_call")
