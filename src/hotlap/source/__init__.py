"""The user's source: read, edited and compiled, so that errors and hot lines still show the lines on disk."""
