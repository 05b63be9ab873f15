"""The mirror of EndpointSlices under any events, lost ones included: after a list it is what the server has."""

import json

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.config.discovery import KubernetesDiscovery
from router.control.endpoint_slices import EndpointSlice, Seen, SliceMirror

CONFIG = KubernetesDiscovery(service="engines")
endpoints = st.builds(
    lambda last, name, ready, terminating: {
        "addresses": [f"10.0.0.{last}"],
        "conditions": {"ready": ready, "terminating": terminating},
        "targetRef": {"name": name},
    },
    st.integers(1, 5), st.sampled_from("abc"), st.sampled_from([None, True, False]), st.booleans(),
)  # fmt: skip


class MirrorMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.mirror = SliceMirror(CONFIG)
        self.server = {}
        self.in_step = True

    def tell(self, kind, each, *, is_lost):
        if is_lost:
            self.in_step = False
            return
        seen = self.mirror.take(json.dumps({"type": kind, "object": each}).encode())
        assert seen in {Seen.CHANGED, Seen.NOTHING}

    @rule(name=st.sampled_from(["s1", "s2", "s3"]), some=st.lists(endpoints, max_size=3), is_lost=st.booleans())
    def a_slice_changes(self, name, some, is_lost):
        each = {
            "metadata": {"name": name, "resourceVersion": "1"}, "addressType": "IPv4", "endpoints": some,
            "ports": [{"port": 30_000}],
        }  # fmt: skip
        kind = "MODIFIED" if name in self.server else "ADDED"
        self.server[name] = each
        self.tell(kind, each, is_lost=is_lost)

    @rule(name=st.sampled_from(["s1", "s2", "s3"]), is_lost=st.booleans())
    def a_slice_goes(self, name, is_lost):
        each = self.server.pop(name, None)
        if each is not None:
            self.tell("DELETED", each, is_lost=is_lost)

    @rule(line=st.binary(max_size=30))
    def garbage_comes(self, line):
        before = self.mirror.to_entries()
        assert self.mirror.take(line) is Seen.BAD
        assert self.mirror.to_entries() == before

    @rule()
    def all_is_listed(self):
        self.mirror.replace([msgspec.convert(each, EndpointSlice) for each in self.server.values()], "2")
        self.in_step = True

    @invariant()
    def in_step_it_has_what_the_server_has(self):
        entries = self.mirror.to_entries()
        assert len({entry.worker for entry in entries}) == len({entry.config.url for entry in entries}) == len(entries)
        if not self.in_step:
            return
        best = {}
        for each in self.server.values():
            for one in each["endpoints"]:
                told = (not one["conditions"]["terminating"], one["conditions"]["ready"] is not False)
                address = one["addresses"][0]
                best[address] = max(best.get(address, told), told)
        told = {entry.config.url[7:-6]: (not entry.draining, entry.ready) for entry in entries}
        assert told == best


TestMirror = MirrorMachine.TestCase
TestMirror.settings = settings(max_examples=50, stateful_step_count=20)
