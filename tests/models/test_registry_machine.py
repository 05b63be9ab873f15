"""The registry driven at random by several sources: its edits, replayed, are the fleet; the fleet is what counts."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.config.workers import WorkerConfig
from router.control.registry import Entry, Listed, Put, Registry, Removed, WorkerAdded, WorkerChanged, WorkerGone

SOURCES = ("config", "file", "kubernetes")
entries = st.builds(
    lambda name, port, dp_size, ready, draining: Entry(
        WorkerConfig(id=name, url=f"http://h:{port}", dp_size=dp_size), ready, draining
    ),
    st.sampled_from("abc"),
    st.integers(1, 4),
    st.sampled_from([None, 2]),
    st.booleans(),
    st.booleans(),
)


class RegistryMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.registry = Registry(SOURCES)
        self.told = {source: {} for source in SOURCES}
        self.replayed = {}

    def tell(self, word):
        for edit in self.registry.apply(word):
            match edit:
                case WorkerAdded(entry):
                    assert entry.worker not in self.replayed
                    assert entry.address not in {each.address for each in self.replayed.values()}
                    self.replayed[entry.worker] = entry
                case WorkerChanged(before, entry):
                    assert self.replayed[entry.worker] == before != entry
                    self.replayed[entry.worker] = entry
                case WorkerGone(entry):
                    assert self.replayed.pop(entry.worker) == entry

    @rule(source=st.sampled_from(SOURCES), listed=st.lists(entries, max_size=4, unique_by=lambda each: each.worker))
    def a_source_lists_all(self, source, listed):
        self.told[source] = {entry.worker: entry for entry in listed}
        self.tell(Listed(source, tuple(listed)))

    @rule(source=st.sampled_from(SOURCES), entry=entries)
    def a_source_puts_one(self, source, entry):
        self.told[source][entry.worker] = entry
        self.tell(Put(source, entry))

    @rule(source=st.sampled_from(SOURCES), name=st.sampled_from("abc"))
    def a_source_removes_one(self, source, name):
        self.told[source].pop(name, None)
        self.tell(Removed(source, name))

    @invariant()
    def the_edits_make_the_fleet(self):
        assert self.replayed == self.registry.fleet

    @invariant()
    def whoever_stands_first_counts_and_nobody_twice(self):
        expected, addresses = {}, set()
        for source in SOURCES:
            for name, entry in self.told[source].items():
                if name not in expected and entry.address not in addresses:
                    expected[name] = entry
                    addresses.add(entry.address)
        assert self.registry.fleet == expected

    @invariant()
    def what_does_not_count_is_told(self):
        named = sum(map(len, self.told.values()))
        assert len(self.registry.fleet) + len(self.registry.shadowed) == named


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=60, stateful_step_count=25)
