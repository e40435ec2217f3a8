"""A run: the training loop, its folder on disk, its checkpoints, and what a user sees of it."""
