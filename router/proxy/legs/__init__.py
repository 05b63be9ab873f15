"""Requests that two ranks serve: a prefill leg and a decode leg. Takes placed pairs from the call, gives it one answer.

`machine` decides what becomes of the legs, `bodies` and `rooms` say in each engine's way who the other one is, and
`sending` with `pair` carries it out. What may be sent again, and when, is in `retries`, for requests of one leg too.
"""
