"""The parts of Numba that are not documented: there today, and done without when they are not."""

import os
import subprocess
import sys
from pathlib import Path

from caql.maxq.exact.compilation import missing_parts
from caql.maxq.exact.screen import FAILED, INFEASIBLE, LIMITED, SKIPPED
from caql.maxq.problem import Status


def test_this_numba_has_every_part():
    assert missing_parts() == ()


def test_compiled_code_knows_the_status_by_the_same_numbers():
    assert (LIMITED, FAILED, SKIPPED, INFEASIBLE) == (Status.LIMIT, Status.FAILED, Status.SKIPPED, Status.INFEASIBLE)


SCRIPT = """
import ctypes
import numba, numba.core.cpu

known = numba.njit

def njit(*function, **options):
    assert not {"_nrt", "no_cpython_wrapper", "no_cfunc_wrapper"} & set(options)
    return known(*function, **options)

numba.njit, numba.core.cpu.CPUTargetOptions = njit, object
from caql.maxq.exact.compilation import address_of, allocating, called_from_c, compiled

@compiled
def add(a, b):
    return a + b

@called_from_c
def twice(number):
    return add(number, number)

print(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address_of(twice))(21))
"""


def test_without_a_part_it_compiles_through_the_public_interface(tmp_path: Path):
    """A function of two lines: the whole solver takes minutes so."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "42"
    notices = [line for line in done.stderr.splitlines() if "lacks the option _nrt of njit" in line]
    assert len(notices) == 1
