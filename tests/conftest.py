"""One thread each and one compilation of each program, set before JAX starts."""

import os
import shutil
import warnings
from pathlib import Path

import pytest

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# Many tests build the same small agent; what XLA compiled for one serves them all, in every process.
cache = Path(__file__).parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


@pytest.fixture
def as_in_a_clone(tmp_path, monkeypatch):
    """An empty folder with the files that the pages name."""
    for name in ("examples", "results", "docs"):
        (tmp_path / name).symlink_to(Path(__file__).parent.parent / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """The folder of a short CAQL run on Pendulum: it has learned nothing, and has everything that a run has."""
    from caql.agents.caql import CAQLConfig
    from caql.config import RunConfig
    from caql.maxq.solvers import make_solver
    from caql.runs.folder import run

    folder = tmp_path_factory.mktemp("small") / "run"
    agent = CAQLConfig(hidden=(8, 4), action_hidden=(8,), solver=make_solver("exact"))
    config = RunConfig("Pendulum", train_steps=40, steps_per_epoch=20, episode_steps=12, warm_up=24,
                       evaluate_every=20, evaluation_episodes=2, agent=agent)  # fmt: skip
    assert run(config, folder)
    return folder


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window, where the machine has one; the tests that need it fall away elsewhere."""
    webdriver = pytest.importorskip("selenium.webdriver")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("there is no chromium with its chromedriver here")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    with warnings.catch_warnings():
        # JAX warns of any fork; this one becomes chromedriver at once.
        warnings.simplefilter("ignore", RuntimeWarning)
        window = webdriver.Chrome(options=options, service=service)
    window.set_window_size(1240, 1000)
    yield window
    window.quit()
