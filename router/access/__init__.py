"""Who may ask for what: takes header lines and a path from the edges, gives a principal or a refusal back.

Pure. Keys come as digests from the configuration; the edges (`router.guard`, `router.control.keys_file`) read files
and answer clients.
"""

from router.access.gate import AccessGate
from router.access.keys import Key, KeyRing
from router.access.principal import OPERATOR, Principal, Role

__all__ = ["OPERATOR", "AccessGate", "Key", "KeyRing", "Principal", "Role"]
