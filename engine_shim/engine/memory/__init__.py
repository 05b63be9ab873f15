"""The tensors that pages live in.

Takes sizes from the spec, gives pools to forward.
"""
