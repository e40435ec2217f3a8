"""max-Q by our own branch and bound on ReLU phases, compiled by Numba."""
