"""One file per tracker or dashboard, found by walking this folder."""
