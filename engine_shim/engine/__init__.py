"""A small real engine: admit, match prefix, allocate, prefill, decode, publish."""
