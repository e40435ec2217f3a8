"""max over a of Q(x, a): the solvers and what they share."""
