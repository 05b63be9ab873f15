"""Who is speaking: the conversation a request belongs to, and its parent.

Takes headers and the parsed body from the proxy; gives placement a session name.
"""
