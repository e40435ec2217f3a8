"""The same sweep on a real Ray of this machine, if Ray is installed; addresses that do not answer, in any case."""

import importlib.util
import os
import socket
import subprocess
import sys
import time

import pytest

from caql.errors import CaqlError
from caql.experiments.sweep.ray_workers import _reach
from caql.runs.folder import is_finished

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def caql_sweep(*arguments):
    """In a process of its own: Ray starts threads and handlers that no other test should meet."""
    code = "import sys; from caql.cli.sweep import main; main(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )


def tiny(out, *arguments):
    settings = "warm_up=64; evaluate_every=20; evaluation_episodes=1; episode_steps=20; replay_size=1000"
    chosen = ["--tasks", "pendulum-2", "--methods", "naf", "--train-steps", "40", "--set", settings]
    return caql_sweep("table1", *chosen, "--out", str(out), *arguments)


@needs_ray
def test_two_runs_on_a_local_ray(tmp_path):
    found = tiny(tmp_path, "--seeds", "2", "--workers", "2", "--ray")
    assert found.returncode == 0, found.stderr
    assert "2 finished" in found.stdout
    folders = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert len(folders) == 2
    assert all(is_finished(folder) for folder in folders)


@needs_ray
def test_a_port_that_is_not_ray_is_given_up_in_fifteen_seconds(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.monotonic()
        found = tiny(tmp_path, "--seeds", "1", "--ray", f"127.0.0.1:{server.getsockname()[1]}")
    assert found.returncode != 0
    assert "no Ray answered" in found.stderr
    # The limit is fifteen seconds; starting Python and importing Ray come on top.
    assert time.monotonic() - began < 40


def test_nobody_at_the_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(CaqlError, match="does not answer"):
        _reach(f"127.0.0.1:{port}")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("address", ["nonsense", "host:", ":6379", "host:port", "ray://host"])
def test_addresses_that_are_none(address):
    with pytest.raises(CaqlError, match="must be HOST:PORT"):
        _reach(address)
