"""Takes agent sessions, runs them through a real router and real engines, gives one table to compare policies."""
