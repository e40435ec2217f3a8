"""Networks as graphs of operations, and their lowering to the layered ReLU networks that bounds and solvers take."""

from caql.graphs.graph import Network as Network
