"""Events in, index, policy, placement, proxy out."""
