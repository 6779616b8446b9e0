"""Inside the training process: listens, never acts. Needs nothing but the standard library and torch."""
