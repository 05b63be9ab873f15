"""Contiguous ports are reserved by binding: a taken one in the middle makes the run move."""

import socket

import pytest
import zmq

from engine_shim.engine.publish.config import Endpoint
from engine_shim.engine.publish.ports import PortsTaken, bind_run


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
    base = bind_run(run, Endpoint("127.0.0.1", 0)).port_base
    ports = [int(one.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2]) for one in run]
    assert ports == list(range(base, base + 8))


def test_two_runs_share_no_port(sockets):
    first = bind_run(sockets(4), Endpoint("127.0.0.1", 0)).port_base
    second = bind_run(sockets(4), Endpoint("127.0.0.1", 0)).port_base
    assert not set(range(first, first + 4)) & set(range(second, second + 4))


def test_a_taken_port_in_the_middle_of_a_run_makes_it_start_elsewhere(sockets, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        first = sockets(1)[0]
        bind, tried = first.bind, []

        def bind_before_the_taken_port(address):
            """The system's first choice is the port below the taken one."""
            tried.append(address)
            bind(f"tcp://127.0.0.1:{port - 1}" if len(tried) == 1 and address.endswith("*") else address)

        monkeypatch.setattr(first, "bind", bind_before_the_taken_port, raising=False)
        found = bind_run([first, *sockets(1)], Endpoint("127.0.0.1", 0))
    assert len(tried) >= 2
    assert found.port_base != port - 1


def test_a_port_that_is_taken_between_its_choice_and_its_use_is_chosen_anew(sockets, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        first = sockets(1)[0]
        bind, tried = first.bind, []

        def bind_to_the_taken_port(address):
            tried.append(address)
            bind(f"tcp://127.0.0.1:{port}" if len(tried) == 1 else address)

        monkeypatch.setattr(first, "bind", bind_to_the_taken_port, raising=False)
        assert bind_run([first], Endpoint("127.0.0.1", 0)).port_base != port


def test_a_named_run_with_a_taken_port_is_refused_and_released(sockets):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        base = taken.getsockname()[1] - 1
        with pytest.raises(PortsTaken, match=str(base + 1)):
            bind_run(sockets(2), Endpoint("127.0.0.1", base))


def test_an_address_of_another_machine_is_refused(sockets):
    with pytest.raises(PortsTaken):
        bind_run(sockets(1), Endpoint("192.0.2.1", 0))


def test_no_sockets_need_no_ports():
    assert bind_run([], Endpoint("127.0.0.1", 0)) == Endpoint("127.0.0.1", 0)
