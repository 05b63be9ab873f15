"""Agent traffic without a GPU fleet: trace loaders, workloads, demo."""
