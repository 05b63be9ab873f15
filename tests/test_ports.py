"""Ports for tests: each given out once, outside of what connections get."""

import socket
from pathlib import Path

import pytest

from tests.ports import END, FIRST, HOST, closed_port, take_port, take_ports
from tests.waiting import PATIENCE_S


def test_every_port_is_given_out_once_and_can_be_bound():
    ports = take_ports(50)
    assert len(set(ports)) == 50
    assert all(FIRST <= port < END for port in ports)
    with socket.create_server((HOST, ports[-1])):
        assert take_port() not in ports


def test_ports_lie_outside_of_those_that_connections_get():
    text = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not text.exists():
        pytest.skip("only Linux says which ports connections get")
    assert int(text.read_text().split()[0]) >= END


def test_a_taken_port_is_passed_over():
    start = take_port(run=3)
    with socket.create_server((HOST, start + 4)):
        assert {start + 4}.isdisjoint(take_ports(900))


def test_a_closed_port_refuses_connections_and_stays_taken():
    with closed_port() as port:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port), timeout=PATIENCE_S)
        with pytest.raises(OSError, match="in use"):
            socket.create_server((HOST, port))
