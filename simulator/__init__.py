"""Agent traffic without a GPU fleet: trace loaders, workloads, demo, and whole fleets in virtual time."""
