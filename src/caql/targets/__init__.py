"""What a Bellman label is made from: the context, the speed-ups around the max-Q solve, the label."""
