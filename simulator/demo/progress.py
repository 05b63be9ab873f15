"""Progress of a run: a bar on a terminal, a plain line every tenth of the way elsewhere."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from simulator.demo.client import Reply


class RunProgress:
    """Counts the replies of one policy's run.

    Args:
        console: Where to draw.
        policy: Name to show.
        requests: How many replies will come.
    """

    def __init__(self, console: Console, policy: str, requests: int) -> None:
        self._console, self._policy, self._requests = console, policy, requests
        self._done = self._failed = self._shown_tenths = 0
        self._bar = _build_bar(console) if console.is_terminal else None
        self._task = self._bar.add_task(policy, total=requests, failed="", note="") if self._bar else None

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def take(self, reply: Reply) -> None:
        """Count one reply of the demo."""
        self.count(reply.session_id, reply.failure)

    def count(self, name: str, failure: str | None, note: str = "") -> None:
        """Count one end; a failure is shown as such, the first ones with their reason; `note` goes beside the bar."""
        self._done += 1
        if failure is not None:
            self._failed += 1
            if self._failed <= 3:
                self._console.print(f"failed request of {name}: {failure}", markup=False)
        if self._bar and self._task is not None:
            failed = f"{self._failed} failed" if self._failed else ""
            self._bar.update(self._task, completed=self._done, failed=failed, note=note)
        else:
            self._print_tenth()

    def _print_tenth(self) -> None:
        tenths = 10 * self._done // self._requests
        if tenths > self._shown_tenths:
            self._shown_tenths = tenths
            self._console.print(f"{self._policy}: {self._done}/{self._requests} requests, {self._failed} failed")


def _build_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:>16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[red]{task.fields[failed]}"),
        TextColumn("{task.fields[note]}"),
        console=console,
    )
