"""Make docs/figures/hopper.gif and docs/figures/proof.gif: a policy at work, and what it maximises.

    caql train Hopper --solver ga --train-steps 110000 --out runs/hopper
    python docs/figures/moving.py runs/hopper

The first is what `caql play` shows of the run.  The second is the page of `caql explore` on the HalfCheetah network
that comes with the package, photographed in Chromium stage by stage: the bound comes down on the maximum.
Needs "caql[video]", selenium, and Debian's chromium and chromium-driver.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from PIL import Image

from caql.cli.explore import main as explore
from caql.cli.play import main as play
from caql.playing.sinks import file_sink

HERE = Path(__file__).parent
SIZE, WIDTH = (1000, 1700), 820
"""The browser's window, and the picture's width, in pixels."""
STATES, HOLD = 3, 6
"""States shown, and frames for which a finished proof is held."""
NETWORK = resources.files("caql") / "bench" / "networks" / "halfcheetah.safetensors"
DATA = "return document.getElementById('data').textContent"
MOVE = """
const slider = document.getElementById(arguments[0]);
slider.value = arguments[1];
slider.dispatchEvent(new Event("input"));
"""


def open_page(page: Path) -> Any:
    """The page in a browser without a window."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE[0]},{SIZE[1]}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver") or ""))
    driver.get(page.as_uri())
    return driver


def photograph(driver: Any) -> Image.Image:
    """The landscape and the proof beside it."""
    shot = driver.find_element("css selector", ".columns").screenshot_as_png
    image = Image.open(io.BytesIO(shot)).convert("RGB")
    # Below the map there are only the legend and notes.
    image = image.crop((0, 0, image.width, min(image.height, 560)))
    return image.resize((WIDTH, round(image.height * WIDTH / image.width) // 2 * 2), Image.Resampling.LANCZOS)


def proofs(out: Path) -> None:
    """One proof after the other."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        explore([str(NETWORK), "--out", str(page)])
        driver = open_page(page)
        try:
            # The longest proofs are the ones to watch.
            lengths = [len(each["stages"]) for each in json.loads(driver.execute_script(DATA))["states"]]
            chosen = sorted(sorted(range(len(lengths)), key=lambda state: -lengths[state])[:STATES])
            with file_sink(out) as film:
                for state in chosen:
                    driver.execute_script(MOVE, "state", state)
                    for stage in range(1, lengths[state]):
                        driver.execute_script(MOVE, "stage", stage)
                        image = photograph(driver)
                        for _ in range(HOLD if stage == lengths[state] - 1 else 1):
                            film.show(image, 1.6)
        finally:
            driver.quit()


def main() -> None:
    """Make both."""
    (run,) = sys.argv[1:]
    play([run, "--video", str(HERE / "hopper.gif"), "--overlay", "--width", "240", "--seed", "3", "--speed", "0.5"])
    proofs(HERE / "proof.gif")


if __name__ == "__main__":
    main()
