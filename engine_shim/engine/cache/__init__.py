"""Which prefixes are kept in which pages, and who holds them.

Takes tokens and page counts from admission, gives page tables to it and cache events to publish.
"""
