"""Which addresses a worker may register under. Pure: names come with the addresses that they stand for.

Nothing is allowed that is not listed. Addresses of this machine, of its link and of clouds' metadata services are
allowed only where they themselves are listed, or a network within theirs: no wide network and no name lets them in.
Source: docs/faults.md G02.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: Networks that hold what no worker is, or what answers to whoever stands on this machine.
_SPECIAL: tuple[Network, ...] = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4",
            "::/128", "::1/128", "fe80::/10", "ff00::/8",
            # Metadata of clouds outside link-local: Alibaba, Oracle and Azure's wire server, AWS over IPv6.
            "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32", "fd00:ec2::254/128",
        ),
    )
)  # fmt: skip
_PORTS = {"http": 80, "https": 443}


class AllowList:
    """Hosts, networks and ports of the configuration.

    Args:
        hosts: Names, `*.` before one for all below it, and addresses.
        cidrs: Networks.
        ports: Ports; None allows all.
    """

    def __init__(self, hosts: Iterable[str], cidrs: Iterable[str], ports: Iterable[int] | None) -> None:
        named = {host.lower().rstrip(".") for host in hosts}
        addresses = {host: found for host in named if (found := read_address(host)) is not None}
        self._addresses = frozenset(addresses.values())
        self._names = frozenset(name for name in named if name not in addresses)
        self._networks: tuple[Network, ...] = tuple(map(ip_network, cidrs))
        self._ports = None if ports is None else frozenset(ports)

    def find_url_problem(self, url: str, addresses: Sequence[str]) -> str | None:
        """Why a worker may not be at a URL, in words; None where it may.

        Args:
            url: As it was sent; http or https.
            addresses: What its host stands for now, all of it.
        """
        parts = urlsplit(url)
        host = (parts.hostname or "").lower().rstrip(".")
        port = parts.port or _PORTS.get(parts.scheme, 0)
        if self._ports is not None and port not in self._ports:
            return f"port {port} is not in registration.ports"
        if not addresses:
            return f"{host} stands for no address"
        for text in addresses:
            address = read_address(text)
            problem = "no address" if address is None else self._find_address_problem(host, address)
            if problem is not None:
                return f"{text} {problem}" if text == host else f"{host} stands for {text}, which {problem}"
        return None

    def _find_address_problem(self, host: str, address: Address) -> str | None:
        if address in self._addresses:
            return None
        special = next((net for net in _SPECIAL if net.version == address.version and address in net), None)
        for network in self._networks:
            if network.version == address.version and address in network and _lets_in(network, special):
                return None
        if special is not None:
            return "is an address of this machine, its link or a metadata service"
        return None if self._has_name(host) else "is in neither registration.hosts nor registration.cidrs"

    def _has_name(self, host: str) -> bool:
        return host in self._names or any(
            name.startswith("*.") and host.endswith(name[1:]) and len(host) > len(name) - 1 for name in self._names
        )


def _lets_in(network: Network, special: Network | None) -> bool:
    """Whether a network of the configuration means the special one that an address is in."""
    return special is None or (network.version == special.version and network.subnet_of(special))  # type: ignore[arg-type]  # of one version


def read_address(text: str) -> Address | None:
    """An address, one of IPv4 in the clothes of IPv6 undressed; None for a name."""
    try:
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if not isinstance(address, IPv6Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and any(address in network for network in _TRANSLATED):
        inner = IPv4Address(int(address) & 0xFFFF_FFFF)
    return inner or address


#: IPv6 networks whose last four bytes are an IPv4 address: NAT64, and the obsolete compatible form but for ::1 and ::.
_TRANSLATED = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
