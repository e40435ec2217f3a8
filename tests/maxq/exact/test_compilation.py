"""The parts of Numba that are not documented: there today, and done without when they are not."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from caql.maxq.exact.compilation import missing_parts
from caql.maxq.exact.screen import FAILED, INFEASIBLE, LIMITED, SKIPPED
from caql.maxq.maximize import maximize
from caql.maxq.problem import Status

from ..problems import he_layers


def test_this_numba_has_every_part():
    assert missing_parts() == ()


def test_compiled_code_knows_the_status_by_the_same_numbers():
    assert (LIMITED, FAILED, SKIPPED, INFEASIBLE) == (Status.LIMIT, Status.FAILED, Status.SKIPPED, Status.INFEASIBLE)


def test_without_a_part_it_compiles_through_the_public_interface(tmp_path: Path):
    code = (
        "import numba.core.cpu as cpu\n"
        "del cpu.CPUTargetOptions._nrt\n"
        "import numpy as np\n"
        "from tests.maxq.problems import he_layers\n"
        "from caql.maxq.maximize import maximize\n"
        "states = np.random.default_rng(0).normal(size=(3, 2))\n"
        "print(*maximize(he_layers(1, (4, 6, 4, 1)), -1.0, 1.0, states, tolerance=1e-8).values)\n"
    )
    root = Path(__file__).parents[3]
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    notices = [line for line in done.stderr.splitlines() if "lacks the option _nrt of njit" in line]
    assert len(notices) == 1
    states = np.random.default_rng(0).normal(size=(3, 2))
    expected = maximize(he_layers(1, (4, 6, 4, 1)), -1.0, 1.0, states, tolerance=1e-8).values
    np.testing.assert_allclose([float(word) for word in done.stdout.split()], expected, atol=1e-7)
