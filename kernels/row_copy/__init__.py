"""The copy that all ops of the row-copy family are: rows of indexed pages to indexed pages, in one launch."""

from kernels.row_copy.plan import RowCopy, Side

__all__ = ["RowCopy", "Side"]
