"""Runs trials: isolated, interleaved, and kept in an append-only ledger."""
