"""Which requests run in a step, with how many tokens each.

Takes requests from the engine and pages from cache, gives a step's plan and the outcome of each token.
"""
