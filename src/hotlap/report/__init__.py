"""Draws what was found: the view, its words in two languages, and one renderer per output."""
