"""The general mixed-integer solvers: SCIP, HiGHS, Gurobi, CPLEX, one function each.

`formulation` makes the arrays; a function here hands them to its solver and brings the answer back.  This is the
only file that knows these solvers.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caql.extras import is_there, missing
from caql.maxq.interrupts import interruptible
from caql.maxq.mip.formulation import Model

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
    """A solver's best point (None if it has none), its bound on the objective with offset, and its nodes.

    `interrupted`: by Ctrl-C; the rest is what was known then.
    """

    point: Array | None
    bound: float
    nodes: int
    interrupted: bool = False


def require_backend(backend: str) -> None:
    """Raise unless the backend's package can be imported."""
    if not is_there(_PACKAGES[backend]):
        raise missing(_PACKAGES[backend], f"backend = {backend!r}")


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


def highs_relaxation(model: Model) -> Array | None:
    """The optimum of the model without integrality."""
    import highspy

    solver = _highs_arrays(model, np.zeros_like(model.integrality))
    solver.setOptionValue("solver", "simplex")
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return np.array(solver.getSolution().col_value)


def _run_highs(solver: Any) -> bool:
    """Run it; whether Ctrl-C ended it.

    HiGHS asks a Python function whether to stop, in which Python would raise `KeyboardInterrupt`, and all that was
    found would be lost.  So where Ctrl-C may come, it runs in a thread, which Python does not interrupt.
    """
    ended = threading.Event()  # `Thread.join` does not survive being interrupted

    def run() -> None:
        try:
            solver.run()
        finally:
            ended.set()

    with interruptible(solver.cancelSolve) as attempt:
        if attempt.listening:
            solver.HandleUserInterrupt = True
            threading.Thread(target=run).start()
            ended.wait()
        else:
            solver.run()
    if attempt.interrupted:
        solver.cancelSolve()
        ended.wait()
    return attempt.interrupted


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
    if (model.row_lower == model.row_upper).any():
        # With equalities that leave a variable next to no range, its presolve has cut off optima at this tolerance.
        solver.setOptionValue("presolve", "off")
    if start is not None:
        solver.setSolution(len(start), np.arange(len(start), dtype=np.int32), start)
    interrupted = _run_highs(solver)
    info = solver.getInfo()
    solved = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    point = np.array(solver.getSolution().col_value) if solved else None
    ends = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kInterrupt)
    if solver.getModelStatus() not in ends:
        raise RuntimeError(f"HiGHS stopped with {solver.modelStatusToString(solver.getModelStatus())!r}")
    # With rows but no unstable neuron it is a linear program, of which HiGHS gives no MIP bound.
    ended = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    value = info.objective_function_value if ended else np.inf
    bound = info.mip_dual_bound if model.integrality.any() else value
    return Answer(point, bound, int(info.mip_node_count), interrupted)


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
    with interruptible(solver.interruptSolve) as attempt:
        solver.optimizeNogil()  # so that another thread can interrupt it
    if solver.getStatus() not in ("optimal", "gaplimit", "timelimit", "userinterrupt"):
        raise RuntimeError(f"SCIP stopped with status {solver.getStatus()!r}")
    point = None
    if solver.getNSols():
        best = solver.getBestSol()
        point = np.array([solver.getSolVal(best, variable) for variable in variables])
    return Answer(point, solver.getDualbound(), int(solver.getNTotalNodes()), attempt.interrupted)


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
        with interruptible(solver.terminate) as attempt:
            solver.optimize()
        if solver.Status not in (gurobipy.GRB.OPTIMAL, gurobipy.GRB.TIME_LIMIT, gurobipy.GRB.INTERRUPTED):
            raise RuntimeError(f"Gurobi stopped with status {solver.Status}")
        # Gurobi and CPLEX catch Ctrl-C themselves.
        interrupted = attempt.interrupted or solver.Status == gurobipy.GRB.INTERRUPTED
        return Answer(columns.X if solver.SolCount else None, solver.ObjBound, int(solver.NodeCount), interrupted)


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
        aborter = solver.use_aborter(cplex.Aborter())
        with interruptible(aborter.abort) as attempt:
            solver.solve()
        found = np.array(solver.solution.get_values()) if solver.solution.is_primal_feasible() else None
        bound = solver.solution.MIP.get_best_objective()
        ends = solver.solution.status
        aborted = solver.solution.get_status() in (ends.MIP_abort_feasible, ends.MIP_abort_infeasible)
        nodes = int(solver.solution.progress.get_num_nodes_processed())
        return Answer(found, bound, nodes, attempt.interrupted or aborted)


BACKENDS: dict[str, Callable[[Model, Limits, Array | None], Answer]] = {
    "scip": _scip,
    "highs": _highs,
    "gurobi": _gurobi,
    "cplex": _cplex,
}
_PACKAGES = {"scip": "pyscipopt", "highs": "highspy", "gurobi": "gurobipy", "cplex": "cplex"}
