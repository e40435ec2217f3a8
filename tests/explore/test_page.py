"""The page in a real browser: it computes what Python computes, and every control does what it says."""

import json
from importlib import resources

import numpy as np
import pytest

from caql.actions import ActionSet
from caql.cli.explore import main
from caql.explore import page, traces
from caql.explore.subject import Choice, from_network
from caql.maxq.maximize import maximize

NETWORKS = resources.files("caql") / "bench" / "networks"
MODEL = """
const data = JSON.parse(document.getElementById("data").textContent);
const here = data.states[arguments[0]], net = Network.fold(Network.decode(data.layers), here.x);
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of three kinds: many actions, one action, and an action set."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "ASCENT_STOPS", ())
        patch.setattr(traces, "CROSS_ENTROPY_STOPS", ())
        made = {
            name: from_network(NETWORKS / f"{name}.safetensors", Choice(states=4)) for name in ("hopper", "pendulum")
        }
        budget = ActionSet.absolute_budget(weights=np.ones(3), limit=1.2) & ActionSet.bounds(-np.ones(3), np.ones(3))
        made["set"] = made["hopper"]._replace(sets=budget.on_host())
        for name, subject in made.items():
            (folder / f"{name}.html").write_text(page.html(subject, traces.trace(subject), "caql explore"), "utf-8")
    return folder, made


@pytest.fixture
def opened(browser, pages):
    def go(name):
        browser.get_log("browser")
        browser.get((pages[0] / f"{name}.html").as_uri())
        return browser, pages[1].get(name)

    browser.set_window_size(1240, 1000)
    yield go
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def test_the_page_computes_q_as_python_does(opened):
    window, subject = opened("hopper")
    actions = np.random.default_rng(0).uniform(-1, 1, (6, 3))
    for state in range(2):
        found = window.execute_script(
            MODEL + "return arguments[1].map((a) => Network.value(net, a));", state, actions.tolist()
        )
        wanted = [maximize(subject.layers, a, a, subject.states[state]).values[0] for a in actions]
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        value, best = window.execute_script(MODEL + "return [here.value, Network.value(net, here.best)];", state)
        assert value == pytest.approx(best, abs=1e-3)


def test_gradients_and_pieces_are_exact(opened):
    window, _ = opened("hopper")
    numeric, exact = window.execute_script(
        MODEL
        + """const a = [0.31, -0.2, 0.4], h = 1e-6;
        const q = (k, d) => Network.value(net, Network.moved(a, [[k, a[k] + d]]));
        return [a.map((_, k) => (q(k, h) - q(k, -h)) / (2 * h)), Array.from(Network.gradient(net, a).slope)];""",
        0,
    )
    np.testing.assert_allclose(numeric, exact, rtol=1e-4, atol=1e-5)
    worst, count = window.execute_script(
        MODEL
        + """let worst = 0, count = 0;
        for (let k = 0; k < 3; k++) {
          const places = Network.kinks(net, here.best, k, -1, 1);
          const q = (t) => Network.value(net, Network.moved(here.best, [[k, t]]));
          count += places.length - 2;
          for (let s = 0; s + 1 < places.length; s++) {
            const middle = (places[s] + places[s + 1]) / 2;
            worst = Math.max(worst, Math.abs(q(middle) - (q(places[s]) + q(places[s + 1])) / 2));
          }
        }
        return [worst, count];""",
        0,
    )
    assert count > 0
    assert worst < 1e-9


def test_an_ascent_on_the_page_ends_where_the_solver_ends(opened):
    window, _ = opened("hopper")
    pairs = window.execute_script(
        MODEL
        + """return here.ascents.map((path) => {
          const mine = Network.ascend(net, path[0], data.low, data.high, data);
          return [Network.value(net, mine[mine.length - 1]), Network.value(net, path[path.length - 1])];
        });""",
        1,
    )
    np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=2e-3)


def text(window, name):
    return window.execute_script("return document.getElementById(arguments[0]).textContent", name)


def press(window, name, *keys):
    from selenium.webdriver.common.by import By

    window.find_element(By.ID, name).send_keys(*keys)


def test_keys_step_through_states_and_stages(opened):
    from selenium.webdriver.common.keys import Keys

    window, subject = opened("hopper")
    press(window, "state", Keys.HOME)
    assert text(window, "where").startswith(subject.labels[0])
    press(window, "state", Keys.ARROW_RIGHT)
    assert text(window, "where").startswith(subject.labels[1])
    assert "proved" in text(window, "said")
    press(window, "stage", Keys.HOME)
    assert text(window, "said").startswith("Before the search, the interval bound says")
    press(window, "more", Keys.ENTER)
    assert "dual bound" in text(window, "said")
    shown = window.execute_script("return document.querySelectorAll('#proof .dot.worth:not(.to-come)').length")
    assert shown == 0


def test_the_probe_reads_q_and_starts_an_ascent(opened):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    window, _ = opened("hopper")
    press(window, "map", Keys.ARROW_LEFT, Keys.ARROW_DOWN)
    assert "below the maximum" in text(window, "probe")
    assert window.execute_script("return document.querySelectorAll('.path.mine').length") == 0
    press(window, "map", Keys.ENTER)
    assert "Your ascent ends at Q" in text(window, "probe")
    assert window.execute_script("return document.querySelectorAll('.path.mine').length") == 1
    before = text(window, "probe")
    window.find_element(By.ID, "map").click()
    assert text(window, "probe") != before


def test_axes_and_layers_can_be_chosen(opened):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    window, _ = opened("hopper")
    Select(window.find_element(By.ID, "across")).select_by_value("2")
    Select(window.find_element(By.ID, "up")).select_by_value("2")
    chosen = [window.find_element(By.ID, name).get_attribute("value") for name in ("across", "up")]
    assert chosen[1] == "2"
    assert chosen[0] != "2"
    count = "return document.querySelectorAll('#map .mark.ascents').length"
    assert window.execute_script(count) == 2 * traces.STARTS
    window.find_element(By.ID, "show-ascents").click()
    assert window.execute_script(count) == 0


def test_one_action_is_a_curve(opened):
    window, _ = opened("pendulum")
    assert window.execute_script("return document.querySelectorAll('#map canvas').length") == 0
    assert window.execute_script("return document.querySelectorAll('#map .kink').length") > 0
    assert window.execute_script("return document.getElementById('slices-card').hidden")


def test_an_action_set_has_its_shape(opened):
    window, subject = opened("set")
    outline = window.execute_script("return document.querySelector('#map .inside').getAttribute('d')")
    assert outline.count("L") >= 3
    assert "not admissible" in text(window, "probe")
    best = window.execute_script(MODEL + "return here.best", 0)
    assert np.abs(best).sum() <= 1.2 + 1e-6
    assert subject.sets.rows.shape[-2] > 0


@pytest.mark.parametrize("name", ["hopper", "pendulum"])
def test_it_fits_a_phone_and_follows_the_scheme(opened, name):
    window, _ = opened(name)
    grounds = []
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        grounds.append(window.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1]
    size = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        window.refresh()
        assert window.execute_script("return document.documentElement.scrollWidth") <= 360
    finally:
        window.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_everything_that_can_be_used_has_a_name(opened):
    window, _ = opened("hopper")
    nameless = window.execute_script("""
        return [...document.querySelectorAll("button, input, select, [tabindex='0'], svg[role=img]")].filter((each) =>
          !(each.getAttribute("aria-label") || each.textContent.trim() || each.closest("label")))
          .map((each) => each.outerHTML);""")
    assert nameless == []


def test_the_page_of_a_run_shows_its_episode(small_run, browser, tmp_path, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setattr(traces, "ASCENT_STOPS", ())
    monkeypatch.setattr(traces, "CROSS_ENTROPY_STOPS", ())
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    main([str(small_run), "--out", str(tmp_path / "p.html"), "--states", "5"])
    browser.get((tmp_path / "p.html").as_uri())
    stored = json.loads(text(browser, "data"))
    assert [state["step"] for state in stored["states"]] == [0, 3, 6, 9, 12]
    assert browser.execute_script("return document.querySelector('#frame img').naturalWidth") == page.FRAME_WIDTH
    rows = browser.execute_script(
        "return [...document.querySelectorAll('#found tbody tr')].map((each) => each.textContent)"
    )
    assert rows[0].startswith("proved maximum")
    assert rows[1].startswith("action function")
