"""The contract that all processes hold: block identity, cache events, load reports, hints.

Takes bytes and values from engines, gives the same values to prefix_index, router and engine_shim.
Pure: no socket, no clock, nothing of ours imported.
"""
