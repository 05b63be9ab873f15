"""Contiguous ports are reserved by binding: a taken one in the middle makes the run move.

Every test process has a loopback address to itself where the machine has a whole net of them, so that nothing else
that runs there takes or holds a port that a test counts on.
"""

import os
import socket
from contextlib import ExitStack, contextmanager

import pytest
import zmq

from engine_shim.engine.publish.config import Endpoint
from engine_shim.engine.publish.ports import PortsTaken, bind_run

#: Below the range from which Linux picks ports for those who name none.
NAMED_PORTS = range(20_000, 32_000)


def is_bindable(host):
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


OWN = f"127.83.{os.getpid() >> 7 & 255}.{os.getpid() & 127 | 128}"
HOST = OWN if is_bindable(OWN) else "127.0.0.1"


def find_free_run(count):
    """The first of `count` neighbouring ports that can all be bound at this moment."""
    for base in NAMED_PORTS:
        with ExitStack() as bound:
            try:
                for port in range(base, base + count):
                    bound.enter_context(socket.create_server((HOST, port)))
            except OSError:
                continue
            return base
    raise AssertionError(f"no {count} free neighbours at {HOST}")


@contextmanager
def second_of_a_pair_taken():
    """The first port of a pair that is free save for its second."""
    base = find_free_run(2)
    with socket.create_server((HOST, base + 1)):
        yield base


def wait_until_free(port):
    """ZeroMQ lets go of an address in its own thread; one that is never let go runs into the test's time limit."""
    while True:
        try:
            socket.create_server((HOST, port)).close()
        except OSError:
            continue
        return


@pytest.fixture
def sockets():
    context, opened = zmq.Context(), []

    def open_(count):
        new = [context.socket(zmq.PUB) for _ in range(count)]
        opened.extend(new)
        return new

    yield open_
    context.destroy(linger=0)


def test_free_ports_are_contiguous_and_bound(sockets):
    run = sockets(8)
    base = bind_run(run, Endpoint(HOST, 0)).port_base
    ports = [int(one.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2]) for one in run]
    assert ports == list(range(base, base + 8))


def test_two_runs_share_no_port(sockets):
    first = bind_run(sockets(4), Endpoint(HOST, 0)).port_base
    second = bind_run(sockets(4), Endpoint(HOST, 0)).port_base
    assert not set(range(first, first + 4)) & set(range(second, second + 4))


def test_a_taken_port_in_the_middle_of_a_run_makes_it_start_elsewhere(sockets, monkeypatch):
    with second_of_a_pair_taken() as base:
        first = sockets(1)[0]
        bind, tried = first.bind, []

        def bind_before_the_taken_port(address):
            """The system's first choice is the port below the taken one."""
            tried.append(address)
            bind(f"tcp://{HOST}:{base}" if len(tried) == 1 else address)

        monkeypatch.setattr(first, "bind", bind_before_the_taken_port, raising=False)
        found = bind_run([first, *sockets(1)], Endpoint(HOST, 0))
        assert len(tried) >= 2
        assert found.port_base != base
        wait_until_free(base)


def test_a_port_that_is_taken_between_its_choice_and_its_use_is_chosen_anew(sockets, monkeypatch):
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        first = sockets(1)[0]
        bind, tried = first.bind, []

        def bind_to_the_taken_port(address):
            tried.append(address)
            bind(f"tcp://{HOST}:{port}" if len(tried) == 1 else address)

        monkeypatch.setattr(first, "bind", bind_to_the_taken_port, raising=False)
        assert bind_run([first], Endpoint(HOST, 0)).port_base != port
        assert len(tried) >= 2


def test_a_named_run_with_a_taken_port_is_refused_and_released(sockets):
    with second_of_a_pair_taken() as base:
        with pytest.raises(PortsTaken, match=str(base + 1)):
            bind_run(sockets(2), Endpoint(HOST, base))
        wait_until_free(base)


def test_an_address_of_another_machine_is_refused(sockets):
    with pytest.raises(PortsTaken):
        bind_run(sockets(1), Endpoint("192.0.2.1", 0))


def test_no_sockets_need_no_ports():
    assert bind_run([], Endpoint(HOST, 0)) == Endpoint(HOST, 0)
