"""The same network files through caql and through three libraries that write networks into MIP solvers.

    python benchmarks/against_network_mips.py --time-limit 60

Small random networks of several kinds are written as ONNX files, and each library is given the same file and asked for
the maximum over the box [-1, 1]^d with a relative gap of 1e-4, on one thread:

    caql          solver `exact`
    gurobi-ml     Gurobi; without a licence at most 2000 variables and constraints
    PySCIPOpt-ML  SCIP
    OMLT          HiGHS through Pyomo

A file that a library does not take is marked `refused`, with its own words.  Prints a Markdown table: seconds of
processor time, reading the file and building the model included, the best value, and whether it was proved.
pip install torch gurobi-machinelearning pyscipopt-ml omlt highspy before.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from caql import maximize
from caql.graphs import Network
from caql.importers import network
from caql.network_files import read_network
from caql.network_files.export import write_onnx

GAP = 1e-4


class Case(NamedTuple):
    name: str
    module: Any
    inputs: int


class Outcome(NamedTuple):
    seconds: float
    value: float
    proved: bool

    def __str__(self) -> str:
        return f"{self.seconds:.3g} s, {self.value:.4f}" + ("" if self.proved else ", not proved")


def cases() -> list[Case]:
    import torch
    from torch import nn

    torch.manual_seed(0)

    def stack(activation: Callable[[], Any], *sizes: int) -> Any:
        layers: list[Any] = []
        for k, (a, b) in enumerate(itertools.pairwise(sizes)):
            layers += [nn.Linear(a, b)] + ([activation()] if k < len(sizes) - 2 else [])
        for layer in layers:
            if isinstance(layer, nn.Linear):  # of the size that trained networks have, not of torch's default
                nn.init.kaiming_normal_(layer.weight)
                nn.init.normal_(layer.bias, std=0.3)
        return nn.Sequential(*layers).eval()

    normed = stack(nn.ReLU, 6, 32, 16, 1)
    normed.insert(1, nn.BatchNorm1d(32).eval())
    return [
        Case("ReLU 32x16", stack(nn.ReLU, 6, 32, 16, 1), 6),
        Case("ReLU 64x64", stack(nn.ReLU, 6, 64, 64, 1), 6),
        Case("LeakyReLU 32x16", stack(lambda: nn.LeakyReLU(0.1), 6, 32, 16, 1), 6),
        Case("ReLU6 32x16", stack(nn.ReLU6, 6, 32, 16, 1), 6),
        Case("BatchNorm and ReLU 32x16", normed, 6),
        Case("Tanh 8x8, two inputs", stack(nn.Tanh, 2, 8, 8, 1), 2),
    ]


def by_caql(case: Case, path: Path, limit: float) -> Outcome:
    del case
    maximize([(np.ones((1, 1)), np.zeros(1))], 0.0, 1.0)  # compiled before the clock starts
    began = time.process_time()
    read: Any = read_network(path).network
    found = maximize(read, -1, 1, tolerance=0.0, relative_tolerance=GAP, time_limit=limit)
    return Outcome(time.process_time() - began, float(found.values[0]), bool(found.status[0] == 0))


def by_gurobi(case: Case, path: Path, limit: float) -> Outcome:
    import gurobipy as gp
    import onnx
    from gurobi_ml.onnx import add_onnx_constr

    began = time.process_time()
    with gp.Env(params={"OutputFlag": 0}) as env, gp.Model(env=env) as model:
        x = model.addMVar((1, case.inputs), lb=-1, ub=1)
        y = model.addMVar((1, 1), lb=-gp.GRB.INFINITY)
        add_onnx_constr(model, onnx.load(path), x, y)
        model.setObjective(y.sum(), gp.GRB.MAXIMIZE)
        model.Params.MIPGap, model.Params.TimeLimit, model.Params.Threads = GAP, limit, 1
        model.optimize()
        value = model.ObjVal if model.SolCount else float("nan")
        return Outcome(time.process_time() - began, value, model.Status == gp.GRB.OPTIMAL)


def by_scip(case: Case, path: Path, limit: float) -> Outcome:
    import onnx
    from pyscipopt import Model
    from pyscipopt_ml.onnx import add_onnx_constr

    began = time.process_time()
    model = Model()
    model.hideOutput()
    x = np.array([[model.addVar(lb=-1, ub=1) for _ in range(case.inputs)]])
    y = np.array([[model.addVar(lb=None, ub=None)]])
    add_onnx_constr(model, onnx.load(path), x, y)
    model.setObjective(y[0][0], "maximize")
    model.setParam("limits/gap", GAP)
    model.setParam("limits/time", limit)
    model.optimize()
    value = model.getObjVal() if model.getNSols() else float("nan")
    return Outcome(time.process_time() - began, value, model.getStatus() in ("optimal", "gaplimit"))


def by_omlt(case: Case, path: Path, limit: float) -> Outcome:
    import onnx
    import pyomo.environ as pyo
    from omlt import OmltBlock
    from omlt.io import load_onnx_neural_network
    from omlt.neuralnet import FullSpaceNNFormulation
    from pyomo.contrib.appsi.solvers import Highs

    box = dict.fromkeys(range(case.inputs), (-1.0, 1.0))
    began = time.process_time()
    definition = load_onnx_neural_network(onnx.load(path), input_bounds=box)
    model = pyo.ConcreteModel()
    model.net = OmltBlock()
    model.net.build_formulation(FullSpaceNNFormulation(definition))
    model.goal = pyo.Objective(expr=model.net.outputs[0], sense=pyo.maximize)
    solver = Highs()
    solver.highs_options = {"threads": 1}
    solver.config.time_limit, solver.config.mip_gap, solver.config.load_solution = limit, GAP, False
    answer = solver.solve(model)
    value = answer.best_feasible_objective
    proved = "optimal" in str(answer.termination_condition).lower()
    return Outcome(time.process_time() - began, float("nan") if value is None else float(value), proved)


LIBRARIES: dict[str, Callable[[Case, Path, float], Outcome]] = {
    "caql": by_caql,
    "gurobi-ml": by_gurobi,
    "PySCIPOpt-ML": by_scip,
    "OMLT with HiGHS": by_omlt,
}


def written(case: Case, folder: Path) -> Path:
    """The case as an ONNX file."""
    path = folder / "net.onnx"
    graph: Network = network(case.module, shapes={"input": case.inputs})
    write_onnx(graph, path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for one network and library")
    parser.add_argument("--libraries", nargs="*", default=list(LIBRARIES), choices=list(LIBRARIES))
    parser.add_argument("--cases", type=int, default=100, help="only the first so many")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"| network | {' | '.join(options.libraries)} |\n|---|{'---|' * len(options.libraries)}", flush=True)
    for case in cases()[: options.cases]:
        cells = []
        with tempfile.TemporaryDirectory() as folder:
            path = written(case, Path(folder))
            for name in options.libraries:
                try:
                    cells.append(str(LIBRARIES[name](case, path, options.time_limit)))
                except Exception as problem:  # whatever a library says to a network that it does not take
                    words = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:60]
                    cells.append(f"refused: {words}".replace("|", "/"))
        print(f"| {case.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
