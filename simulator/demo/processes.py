"""Child processes of the demo: start, wait until they listen, keep their last words, stop them all.

Children run in process groups of their own, so that a Ctrl-C in the terminal reaches the demo alone and the
demo ends them in order. Whatever ends the demo, no child is left: where it cannot end them itself, the kernel does
(`simulator.demo.tether`).
"""

import asyncio
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import simulator

LISTENING = re.compile(r"listening on (http://\S+)")
#: Lines of a child's stderr that are kept to be shown when it dies.
KEPT_LINES = 30
#: How long a child may take to leave after SIGTERM before it is killed, seconds.
STOP_DEADLINE_S = 5.0


class ChildEndedError(RuntimeError):
    """A child ended, or never listened, while it was needed; the message holds its last stderr lines."""


class Child:
    """One child process that serves HTTP."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.url = ""
        self._process = process
        self._last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._readers = (asyncio.create_task(self._read_stdout()), asyncio.create_task(self._read_stderr()))

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def wait_listening(self, deadline_s: float) -> None:
        """Return when the child has printed its address.

        Raises:
            ChildEndedError: It ended first, or the deadline passed.
        """
        died = asyncio.create_task(self._process.wait())
        either: list[asyncio.Future[Any]] = [self._listening, died]
        await asyncio.wait(either, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
        if self._listening.done():
            died.cancel()
            self.url = self._listening.result()
            return
        if not died.done():
            died.cancel()
            raise ChildEndedError(self._story(f"did not listen within {deadline_s:g} s"))
        await self._drain()
        raise ChildEndedError(self._story(f"ended with exit code {died.result()} before it listened"))

    async def wait_death(self) -> str:
        """Return the story of the child's end, whenever that comes."""
        exit_code = await self._process.wait()
        await self._drain()
        return self._story(f"ended with exit code {exit_code}")

    def kill(self) -> None:
        """End the child at once."""
        self._signal(signal.SIGKILL)

    async def stop(self) -> None:
        """End the child: SIGTERM, and SIGKILL when it does not leave in time."""
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_DEADLINE_S)
        except TimeoutError:
            self.kill()
            await self._process.wait()
        self.kill()  # the group may outlive its leader
        await self._drain()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return  # already gone

    def _story(self, what: str) -> str:
        lines = "\n".join(f"  {line}" for line in self._last_lines) or "  (it wrote nothing)"
        return f"{self.name} {what}; its last lines:\n{lines}"

    async def _drain(self) -> None:
        await asyncio.wait(self._readers, timeout=1.0)
        for reader in self._readers:
            reader.cancel()

    async def _read_stdout(self) -> None:
        stream = self._process.stdout
        while stream is not None and (raw := await _read_line(stream)):
            found = LISTENING.search(raw)
            if found and not self._listening.done():
                self._listening.set_result(found[1].rstrip("/"))

    async def _read_stderr(self) -> None:
        stream = self._process.stderr
        while stream is not None and (raw := await _read_line(stream)):
            self._last_lines.append(raw.rstrip())


async def _read_line(stream: asyncio.StreamReader) -> str:
    """One line, or the next 64 KiB of an endless one; empty at the end."""
    try:
        return (await stream.readuntil()).decode(errors="replace")
    except asyncio.IncompleteReadError as error:
        return error.partial.decode(errors="replace")
    except asyncio.LimitOverrunError as error:
        return (await stream.read(max(1, error.consumed))).decode(errors="replace")


class Children:
    """All children of one demo; used as an async context manager that stops them on every way out."""

    def __init__(self) -> None:
        self._running: list[Child] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(*self._running)

    async def start(self, name: str, arguments: Sequence[str], extra_env: Mapping[str, str]) -> Child:
        """Start `python -m ARGUMENTS` without waiting for it to listen; the thread that calls must outlive it."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "simulator.demo.tether",
            str(os.getpid()),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(extra_env),
            start_new_session=True,
        )
        child = Child(name, process)
        self._running.append(child)
        return child

    async def stop(self, *children: Child) -> None:
        """Stop these children, all at the same time."""
        await asyncio.gather(*(child.stop() for child in children))
        self._running = [child for child in self._running if child not in children]

    def kill_all(self) -> None:
        """End every child that was not stopped, at once; needs no event loop."""
        for child in self._running:
            child.kill()

    async def first_death(self) -> str:
        """Return the story of the first child that ends by itself."""
        watches = [asyncio.create_task(child.wait_death()) for child in self._running]
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for watch in watches:
                watch.cancel()


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, with our packages importable from a source tree as well."""
    source = str(Path(simulator.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **extra}
