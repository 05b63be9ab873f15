"""Who holds which block of which prompt."""
