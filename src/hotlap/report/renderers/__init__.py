"""One file per output, found by walking this folder; a renderer draws the view and computes nothing."""
