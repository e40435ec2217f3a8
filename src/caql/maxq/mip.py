"""max-Q by a general mixed-integer solver (Section 3.1): SCIP, HiGHS, Gurobi or CPLEX.

`formulation` makes the arrays, this file hands them over and brings the answer back.  It is the only file
that knows these solvers.  A solver's answer is trusted only for two things: its action, which is clipped
into the box and evaluated in float64, and its dual bound.  A row is called optimal when those two are
within the tolerance of each other, whatever the solver called it; a solver that breaks down on a state
leaves that row flagged with the best action known.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caql.bounds import METHODS, Method, layer_bounds
from caql.errors import CaqlError, nearest
from caql.maxq.formulation import Model, formulate, tighten
from caql.maxq.host import allowed_gap, as_float64, conclude, evaluate, first_guess
from caql.maxq.problem import Problem, Solution, Status

Array = NDArray[np.float64]

FEASIBILITY = 1e-9
"""How far a solver may violate a (scaled) row.  The defaults, 1e-6, would shift Q by more than its tolerance."""


class Limits(NamedTuple):
    """When a solver may stop: gaps in the model's own unit, seconds, and threads."""

    gap: float
    relative_gap: float
    time: float
    threads: int


class Answer(NamedTuple):
    """A solver's best point (None if it has none), its bound on the objective with offset, and its nodes."""

    point: Array | None
    bound: float
    nodes: int


@dataclass(frozen=True)
class Mip:
    """A branch-and-cut solver for each state in turn; needs nothing of the network but piecewise linearity."""

    name: ClassVar[str] = "mip"
    traceable: ClassVar[bool] = False

    backend: str = "scip"
    """scip, highs, gurobi or cplex."""
    time_limit: float = 60.0
    """Seconds for one state."""
    threads: int = 1
    """Threads of the backend for one state (SCIP uses one)."""
    bounds: Method = "backward"
    """Where the big-M constants come from: interval, dual, backward or tightest."""
    cut_rounds: int = 0
    """Rounds of ideal-formulation cuts at the root before the solver starts."""

    def __post_init__(self) -> None:
        if self.backend not in _BACKENDS:
            raise CaqlError(f"backend = {self.backend!r} is not a solver; {nearest(self.backend, _BACKENDS)}")
        if self.bounds not in METHODS:
            raise CaqlError(f"bounds = {self.bounds!r} is not a method; {nearest(self.bounds, METHODS)}")
        if not self.time_limit > 0:
            raise CaqlError(f"time_limit = {self.time_limit} must be a positive number of seconds")
        if self.threads < 1 or self.cut_rounds < 0:
            raise CaqlError(
                f"threads = {self.threads} must be at least 1 and cut_rounds = {self.cut_rounds} at least 0"
            )

    def solve(self, problem: Problem, key: Any = None) -> Solution:  # noqa: ARG002  (the protocol's)
        """Each wanted row by its own model; see the module's docstring for what the rows' status means."""
        require_backend(self.backend)
        network, box = as_float64(problem.network, problem.actions)
        rows = len(network.first_bias)
        with np.errstate(invalid="ignore", over="ignore"):
            bounds = layer_bounds(network, box, self.bounds)
            actions = first_guess(problem, box, rows)
            values = evaluate(network, actions)
        upper = np.array(np.nan_to_num(bounds[-1][1][:, 0], nan=np.inf))
        stopped, work = np.full(rows, int(Status.LIMIT)), np.zeros(rows, np.int64)
        absolute = np.broadcast_to(np.asarray(problem.tolerance, np.float64), rows)
        relative = np.broadcast_to(np.asarray(problem.relative_tolerance, np.float64), rows)
        low, high = (np.broadcast_to(side, actions.shape) for side in box)
        wanted = np.ones(rows, np.bool_) if problem.mask is None else np.asarray(problem.mask)
        for row in np.flatnonzero(wanted & ~(upper - values <= allowed_gap(problem, values))).tolist():
            try:
                model = formulate(network, box, bounds, row)
                # Nine tenths: what the solver leaves open may not be all that is left after re-evaluation.
                limits = Limits(0.9 * absolute[row] / model.unit, 0.9 * relative[row], self.time_limit, self.threads)
                answer = self._search(model, limits, actions[row] if problem.warm_start is not None else None)
            except Exception as error:  # a broken backend must not end a training run
                logging.getLogger(__name__).warning("%s failed on state %d: %s", self.backend, row, error)
                stopped[row] = int(Status.FAILED)
                continue
            work[row] = answer.nodes
            if answer.point is not None:
                found = np.clip(model.action(answer.point), low[row], high[row])
                value = evaluate(network._replace(first_bias=network.first_bias[row]), found)
                if value > values[row] or not np.isfinite(values[row]):
                    actions[row], values[row] = found, value
            proved = model.unit * answer.bound
            if proved < values[row] - max(absolute[row], 1e3 * FEASIBILITY * model.unit):
                # The action at hand refutes the bound: nothing the backend says of this state can be trusted.
                logging.getLogger(__name__).warning("%s cut off the best action of state %d", self.backend, row)
                stopped[row] = int(Status.FAILED)
                continue
            upper[row] = np.fmin(upper[row], proved)
        stopped[~np.isfinite(values)] = int(Status.FAILED)
        return conclude(problem, actions, values, upper, stopped, work)

    def _search(self, model: Model, limits: Limits, warm_start: Array | None) -> Answer:
        if not model.integrality.any() and not len(model.rows):
            # Every neuron is stable: Q is affine over the box.
            corner = np.where(model.objective > 0, model.upper, model.lower)
            return Answer(corner, float(model.objective @ corner) + model.offset, 0)
        if self.cut_rounds:
            model = tighten(model, _highs_relaxation, self.cut_rounds)
        return _BACKENDS[self.backend](model, limits, None if warm_start is None else model.point(warm_start))


def require_backend(backend: str) -> None:
    """Raise unless the backend's package can be imported."""
    package = _PACKAGES[backend]
    if importlib.util.find_spec(package) is None:
        extra = f'"caql[{backend}]"' if backend in ("gurobi", "cplex") else package
        raise CaqlError(f"backend = {backend!r} needs the package {package}; install it with: pip install {extra}")


def _highs_arrays(model: Model, integrality: NDArray[np.bool_]) -> Any:
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    starts, columns, values = model.sparse_rows()
    rowwise, maximise = 2, -1
    status = solver.passModel(
        len(model.objective), len(model.rows), len(values), rowwise, maximise, model.offset,
        model.objective, model.lower, model.upper, model.row_lower, model.row_upper,
        starts, columns, values, integrality.astype(np.int32),
    )  # fmt: skip
    if status == highspy.HighsStatus.kError:
        raise RuntimeError("HiGHS refused the model")
    solver.setOptionValue("primal_feasibility_tolerance", FEASIBILITY)
    solver.setOptionValue("dual_feasibility_tolerance", FEASIBILITY)
    return solver


def _highs_relaxation(model: Model) -> Array | None:
    """The optimum of the model without integrality."""
    import highspy

    solver = _highs_arrays(model, np.zeros_like(model.integrality))
    solver.setOptionValue("solver", "simplex")
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return np.array(solver.getSolution().col_value)


def _highs(model: Model, limits: Limits, start: Array | None) -> Answer:
    import highspy

    solver = _highs_arrays(model, model.integrality)
    # HiGHS keeps one pool of threads for the process and refuses to run with another number of them.
    highspy.Highs.resetGlobalScheduler(True)
    solver.setOptionValue("threads", limits.threads)
    solver.setOptionValue("time_limit", limits.time)
    solver.setOptionValue("mip_abs_gap", limits.gap)
    solver.setOptionValue("mip_rel_gap", limits.relative_gap)
    solver.setOptionValue("mip_feasibility_tolerance", FEASIBILITY)
    if start is not None:
        solver.setSolution(len(start), np.arange(len(start), dtype=np.int32), start)
    solver.run()
    info = solver.getInfo()
    solved = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    point = np.array(solver.getSolution().col_value) if solved else None
    if solver.getModelStatus() not in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kTimeLimit):
        raise RuntimeError(f"HiGHS stopped with {solver.modelStatusToString(solver.getModelStatus())!r}")
    return Answer(point, info.mip_dual_bound, int(info.mip_node_count))


def _scip(model: Model, limits: Limits, start: Array | None) -> Answer:
    from pyscipopt import Expr, ExprCons
    from pyscipopt import Model as Scip
    from pyscipopt.scip import Term

    solver = Scip()
    solver.hideOutput()
    kinds = np.where(model.integrality, "I", "C")
    variables = [
        solver.addVar(vtype=kind, lb=lower, ub=upper, obj=objective)
        for kind, lower, upper, objective in zip(
            kinds, model.lower.tolist(), model.upper.tolist(), model.objective.tolist(), strict=True
        )
    ]
    # Filling an expression's terms directly skips the algebra, which would cost more than many a solve.
    terms = [Term(variable) for variable in variables]
    starts, columns, values = (array.tolist() for array in model.sparse_rows())
    for row, (lower, upper) in enumerate(zip(model.row_lower.tolist(), model.row_upper.tolist(), strict=True)):
        entries = range(starts[row], starts[row + 1])
        expression = Expr({terms[columns[k]]: values[k] for k in entries})
        lhs, rhs = (side if np.isfinite(side) else None for side in (lower, upper))
        solver.addCons(ExprCons(expression, lhs=lhs, rhs=rhs))
    solver.setMaximize()
    solver.addObjoffset(model.offset)
    solver.setParams(
        {
            "limits/absgap": limits.gap,
            "limits/gap": limits.relative_gap,
            "limits/time": limits.time,
            "lp/threads": limits.threads,
            "numerics/feastol": FEASIBILITY,
            "numerics/dualfeastol": FEASIBILITY,
            "misc/catchctrlc": False,
            # Its aggregated cuts cost more time than they save on these models: three to nine times the total.
            "separating/aggregation/freq": -1,
        }
    )
    if start is not None:
        solution = solver.createSol()
        for variable, value in zip(variables, start.tolist(), strict=True):
            solver.setSolVal(solution, variable, value)
        solver.addSol(solution)
    solver.optimize()
    if solver.getStatus() not in ("optimal", "gaplimit", "timelimit"):
        raise RuntimeError(f"SCIP stopped with status {solver.getStatus()!r}")
    point = None
    if solver.getNSols():
        best = solver.getBestSol()
        point = np.array([solver.getSolVal(best, variable) for variable in variables])
    return Answer(point, solver.getDualbound(), int(solver.getNTotalNodes()))


@functools.cache
def _gurobi_environment() -> Any:
    import gurobipy

    # Starting an environment looks for a licence: once a process is enough.
    return gurobipy.Env(params={"OutputFlag": 0})


def _gurobi(model: Model, limits: Limits, start: Array | None) -> Answer:
    import gurobipy

    with gurobipy.Model(env=_gurobi_environment()) as solver:
        kinds = np.where(model.integrality, "I", "C")
        columns: Any = solver.addMVar(len(kinds), lb=model.lower, ub=model.upper, obj=model.objective, vtype=kinds)
        for sides, sense in ((model.row_lower, ">"), (model.row_upper, "<")):
            rows = np.flatnonzero(np.isfinite(sides))
            solver.addMConstr(model.rows[rows], columns, sense, sides[rows])
        solver.ModelSense, solver.ObjCon = -1, model.offset
        solver.Params.MIPGapAbs, solver.Params.MIPGap = limits.gap, limits.relative_gap
        solver.Params.TimeLimit, solver.Params.Threads = limits.time, limits.threads
        solver.Params.FeasibilityTol = solver.Params.OptimalityTol = solver.Params.IntFeasTol = FEASIBILITY
        if start is not None:
            columns.Start = start
        solver.optimize()
        if solver.Status not in (gurobipy.GRB.OPTIMAL, gurobipy.GRB.TIME_LIMIT):
            raise RuntimeError(f"Gurobi stopped with status {solver.Status}")
        return Answer(columns.X if solver.SolCount else None, solver.ObjBound, int(solver.NodeCount))


def _cplex(model: Model, limits: Limits, start: Array | None) -> Answer:
    import cplex

    with cplex.Cplex() as solver:
        for stream in (solver.set_results_stream, solver.set_log_stream, solver.set_warning_stream):
            stream(None)
        kinds = "".join(np.where(model.integrality, "I", "C"))
        solver.variables.add(
            obj=model.objective.tolist(), lb=model.lower.tolist(), ub=model.upper.tolist(), types=kinds
        )
        below, above = np.isfinite(model.row_lower), np.isfinite(model.row_upper)
        senses = np.where(below & above, "R", np.where(below, "G", "L"))
        solver.linear_constraints.add(
            senses="".join(senses),
            rhs=np.where(below, model.row_lower, model.row_upper).tolist(),
            range_values=np.where(below & above, model.row_upper - model.row_lower, 0.0).tolist(),
        )
        rows, columns = np.nonzero(model.rows)
        entries = model.rows[rows, columns]
        solver.linear_constraints.set_coefficients(
            list(zip(rows.tolist(), columns.tolist(), entries.tolist(), strict=True))
        )
        solver.objective.set_sense(solver.objective.sense.maximize)
        solver.objective.set_offset(model.offset)
        parameters = solver.parameters
        parameters.mip.tolerances.absmipgap.set(limits.gap)
        parameters.mip.tolerances.mipgap.set(min(limits.relative_gap, 1.0))
        parameters.mip.tolerances.integrality.set(FEASIBILITY)
        parameters.simplex.tolerances.feasibility.set(FEASIBILITY)
        parameters.simplex.tolerances.optimality.set(FEASIBILITY)
        parameters.timelimit.set(limits.time)
        parameters.threads.set(limits.threads)
        if start is not None:
            point = cplex.SparsePair(list(range(len(start))), start.tolist())
            solver.MIP_starts.add(point, solver.MIP_starts.effort_level.check_feasibility)
        solver.solve()
        found = np.array(solver.solution.get_values()) if solver.solution.is_primal_feasible() else None
        bound = solver.solution.MIP.get_best_objective()
        return Answer(found, bound, int(solver.solution.progress.get_num_nodes_processed()))


_BACKENDS: dict[str, Callable[[Model, Limits, Array | None], Answer]] = {
    "scip": _scip,
    "highs": _highs,
    "gurobi": _gurobi,
    "cplex": _cplex,
}
_PACKAGES = {"scip": "pyscipopt", "highs": "highspy", "gurobi": "gurobipy", "cplex": "cplex"}
