"""A small real engine: admit, match prefix, allocate, prefill, decode, publish.

Takes requests over HTTP from clients and routers, gives tokens back to them and cache events to whoever subscribes.
"""
