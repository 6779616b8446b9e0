"""Profiles of a function or a notebook's cell, in the process that runs it."""
