"""Nouns: frozen, torch-free facts that go to JSON and back. One schema version for all of them."""
