"""Workers register only under addresses that are listed; of this machine, its link and metadata never by accident."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.control.allow_list import AllowList, read_address

WIDE = AllowList(hosts=["engine.example", "*.engines.svc"], cidrs=["0.0.0.0/0", "::/0"], ports=[30_000, 80])


def problem(allowed, url, *addresses):
    return allowed.find_url_problem(url, addresses)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://10.0.0.7:30000", "10.0.0.7"),
        ("http://engine.example:30000", "10.0.0.7"),
        ("http://a.b.engines.svc:30000", "10.0.0.7"),
        ("http://[2001:db8::1]:30000", "2001:db8::1"),
        ("http://10.0.0.7", "10.0.0.7"),
    ],
)
def test_what_is_listed_may_register(url, address):
    assert problem(WIDE, url, address) is None


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "169.254.1.1", "224.0.0.1", "255.255.255.255", "::1",
        "::", "fe80::1", "fe80::1%eth0", "ff02::1", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
    ],
)  # fmt: skip
def test_G02_neither_a_wide_network_nor_a_name_lets_this_machine_or_metadata_in(address):
    assert "machine, its link or a metadata" in problem(WIDE, "http://engine.example:30000", address)
    assert problem(WIDE, f"http://[{address}]:30000" if ":" in address else f"http://{address}:30000", address)


def test_G02_one_bad_address_among_good_ones_refuses_the_name():
    assert problem(WIDE, "http://engine.example:30000", "10.0.0.7", "127.0.0.1")


def test_they_may_where_they_themselves_are_named():
    named = AllowList(hosts=["127.0.0.1", "169.254.169.254"], cidrs=["127.0.8.0/24"], ports=None)
    for address in ("127.0.0.1", "169.254.169.254", "127.0.8.9"):
        assert problem(named, f"http://{address}:1", address) is None
    assert problem(named, "http://127.0.0.2:1", "127.0.0.2")
    assert problem(named, "http://10.0.0.1:1", "10.0.0.1")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://10.0.0.7:22", "port 22 is not in"),
        ("https://10.0.0.7", "port 443 is not in"),
        ("http://engine.example:30000", "stands for no address"),
    ],
)
def test_other_ports_and_names_without_an_address_are_refused(url, words):
    addresses = [] if "example" in url else ["10.0.0.7"]
    assert words in problem(WIDE, url, *addresses)


def test_a_name_is_matched_whole_and_a_star_stands_for_at_least_one_label():
    narrow = AllowList(hosts=["engine.example", "*.engines.svc"], cidrs=[], ports=None)
    for host in ("engine.example.evil.net", "xengine.example", "engines.svc", "evilengines.svc"):
        assert "neither" in problem(narrow, f"http://{host}:1", "10.0.0.7")
    assert problem(narrow, "http://ENGINE.example.:1", "10.0.0.7") is None


@given(st.ip_addresses())
def test_nothing_listed_lets_nothing_in(address):
    nobody = AllowList(hosts=[], cidrs=[], ports=None)
    assert nobody.find_url_problem("http://x:1", [str(address)]) is not None


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_the_same_in_any_clothes(address):
    packed = f"{int(address):08x}"
    for dressed in (f"::ffff:{address}", f"64:ff9b::{packed[:4]}:{packed[4:]}", f"2002:{packed[:4]}:{packed[4:]}::"):
        assert read_address(dressed) == address
