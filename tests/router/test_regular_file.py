"""Files are read whole and never waited for: not a pipe without a writer, not one that falls silent."""

import os
import threading

import pytest

from router import regular_file
from router.cli import read_config
from router.config_files import check_policy
from router.errors import ConfigError
from router.regular_file import read_once


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_policy_file_that_is_a_pipe_is_refused_at_the_start_and_never_waited_for(tmp_path, pipe):
    with pytest.raises(ConfigError, match="it is no regular file"):
        check_policy(pipe)
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("workers: [{url: 'http://h:1'}]\npolicy: {file: pipe}\n")
    with pytest.raises(ConfigError, match="it is no regular file"):
        read_config(fleet, {}, {})


def test_a_fleets_file_may_be_a_pipe_whose_writer_is_there(pipe):
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)

    def write():
        os.write(writer, b"workers: [{url: 'http://h:1'}]\n")
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    fleet = read_config(pipe, {}, {})
    thread.join()
    os.close(reader)
    assert fleet.workers[0].url == "http://h:1"


def test_a_fleets_file_may_be_a_pipe_whose_writer_is_done_already(pipe):
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)
    os.write(writer, b"workers: [{url: 'http://h:1'}]\n")
    os.close(writer)
    fleet = read_config(pipe, {}, {})
    os.close(reader)
    assert fleet.workers[0].url == "http://h:1"


def test_a_pipe_without_a_writer_or_with_one_that_falls_silent_is_told(pipe, monkeypatch):
    monkeypatch.setattr(regular_file, "PIPE_WAIT_S", 0.05)
    with pytest.raises(ConfigError, match=r"nothing came for 0\.05 s"):
        read_once(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)
    try:
        with pytest.raises(ConfigError, match=r"nothing came for 0\.05 s"):
            read_once(pipe)
    finally:
        os.close(writer)
        os.close(reader)
