"""The algorithms, by the name that the user types."""
