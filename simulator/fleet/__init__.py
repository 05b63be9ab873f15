"""Takes requests from the closed loop, runs them through the real router and engine parts on a virtual clock."""
