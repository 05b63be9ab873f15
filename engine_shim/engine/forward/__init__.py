"""Prefill and decode: computes a step's rows.

Takes rows of tokens and page tables from the engine, gives it the next tokens.
"""
