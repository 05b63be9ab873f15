"""Output of the demo: its end is told once and stops no writer."""

import os
import sys
from pathlib import Path

import pytest

from simulator.demo.output import Output

FULL = Path("/dev/full")


@pytest.fixture
def broken_pipe():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as stream:
        yield stream


def test_a_pipe_that_nobody_reads_is_told_once_and_stops_no_writer(broken_pipe):
    output = Output(broken_pipe)
    told = []
    output.on_closed = lambda: told.append("closed")
    for _ in range(3):
        assert output.write("words\n") == 6
        output.flush()
    assert told == ["closed"]


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
def test_a_full_device_is_an_end_too():
    with FULL.open("w") as stream:
        output = Output(stream)
        told = []
        output.on_closed = lambda: told.append("closed")
        output.write("words\n")
        output.flush()
    assert told == ["closed"]


def test_an_open_stream_is_passed_through(capsys):
    output = Output(sys.stdout)
    output.write("words")
    output.flush()
    assert capsys.readouterr().out == "words"
    assert not output.isatty()
    assert output.encoding.lower() == "utf-8"
