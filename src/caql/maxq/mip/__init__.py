"""max-Q as a mixed-integer program: the formulation as plain arrays, and the solvers that take them."""
