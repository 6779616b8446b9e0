"""hotlap finds out why a PyTorch training run is slow, makes it fast, and proves it."""

__version__ = "0.1.0"
