"""The search of `tune`: what is tried, in which order, and what it ends with."""
