"""The prefix cache as plainly as it can be said: a set of page-aligned prefixes, and who holds them.

Every page is named by all tokens from the start to its end. No tree, no page numbers; everything is searched.
"""


class NaiveLease:
    """What a request holds: its published prefix, and how many pages of its own."""

    def __init__(self, salt, prefix):
        self.salt = salt
        self.prefix = prefix
        self.own_pages = 0


class NaivePrefixCache:
    def __init__(self, page_tokens, pool_pages):
        self.page_tokens = page_tokens
        self.pool_pages = pool_pages
        #: (salt, tokens up to the page's end) -> time of the last hold or release.
        self.cached = {}
        self.leases = []
        self.now = 0

    def pages_of(self, salt, tokens):
        """Names of the full pages of some tokens, first page first."""
        ends = range(self.page_tokens, len(tokens) + 1, self.page_tokens)
        return [(salt, tuple(tokens[:end])) for end in ends]

    def match_pages(self, salt, tokens):
        """How many pages of the prompt are cached without a gap; the last token is left out."""
        names = self.pages_of(salt, tokens[:-1])
        return next((count for count, name in enumerate(names) if name not in self.cached), len(names))

    def lease(self, salt, tokens):
        lease = NaiveLease(salt, tuple(tokens[: self.match_pages(salt, tokens) * self.page_tokens]))
        self.leases.append(lease)
        self.touch(lease)
        return lease

    def touch(self, lease):
        self.now += 1
        for name in self.pages_of(lease.salt, lease.prefix):
            self.cached[name] = self.now

    def held(self):
        return {name for lease in self.leases for name in self.pages_of(lease.salt, lease.prefix)}

    def free_pages(self):
        return self.pool_pages - len(self.cached) - sum(lease.own_pages for lease in self.leases)

    def leased_pages(self):
        return len(self.held()) + sum(lease.own_pages for lease in self.leases)

    def evict_one(self):
        """Drop the longest unused page that nobody holds and nothing cached follows."""
        parents = {(salt, tokens[: -self.page_tokens]) for salt, tokens in self.cached}
        leaves = [name for name in self.cached if name not in parents and name not in self.held()]
        del self.cached[min(leaves, key=self.cached.__getitem__)]

    def grow(self, lease, total_pages):
        missing = total_pages - len(lease.prefix) // self.page_tokens - lease.own_pages
        if missing > self.free_pages() + len(self.cached) - len(self.held()):
            return False
        while missing > self.free_pages():
            self.evict_one()
        lease.own_pages += max(0, missing)
        return True

    def publish(self, lease, tokens, computed_tokens):
        full = computed_tokens // self.page_tokens * self.page_tokens
        if full <= len(lease.prefix):
            return
        lease.own_pages -= (full - len(lease.prefix)) // self.page_tokens
        lease.prefix = tuple(tokens[:full])
        self.touch(lease)

    def release(self, lease):
        self.leases.remove(lease)
        self.touch(lease)

    def flush(self):
        if not self.leases:
            self.cached.clear()
        return not self.leases
