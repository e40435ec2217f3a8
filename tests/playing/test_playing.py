"""Frames of a policy: the episode is the one that `caql evaluate` runs, and the files hold what was shown."""

import subprocess
import sys

import numpy as np
import pytest

from caql.cli.evaluate import main as evaluate
from caql.cli.play import main as play
from caql.errors import CaqlError
from caql.model import load_model
from caql.playing import screen
from caql.playing.episodes import episode, visible_task

Image = pytest.importorskip("PIL.Image")
pygame = pytest.importorskip("pygame")


@pytest.fixture(autouse=True)
def no_screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


def test_a_gif_holds_the_episode(small_run, tmp_path, capsys):
    file = tmp_path / "new" / "p.gif"
    play([str(small_run), "--video", str(file), "--width", "64"])
    shown = capsys.readouterr().out
    with Image.open(file) as film:
        # 12 steps and the last state, every second of which is shown: Pendulum has 30 frames a second, a GIF 25.
        assert (film.n_frames, film.size, film.info["duration"]) == (7, (64, 64), 70)
        frames = []
        for index in range(film.n_frames):
            film.seek(index)
            frames.append(np.asarray(film.convert("RGB"), int))
    assert np.abs(frames[0] - frames[-1]).max() > 50
    assert [path.name for path in file.parent.iterdir()] == ["p.gif"]
    evaluate([str(small_run), "--episodes", "1"])
    value = capsys.readouterr().out.split("episode 1: ")[1].split()[0]
    assert f"episode 1: return {value} in 12 steps" in shown


@pytest.mark.filterwarnings("ignore:os.fork")
def test_an_mp4_holds_the_episode(small_run, tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    file = tmp_path / "p.mp4"
    play([str(small_run), "--video", str(file), "--width", "65", "--speed", "0.5"])
    frames, _ = ffmpeg.count_frames_and_secs(str(file))
    assert frames == 13
    said = subprocess.run(
        [ffmpeg.get_ffmpeg_exe(), "-i", str(file)], capture_output=True, text=True, check=False
    ).stderr
    assert "64x64" in said
    assert "15 fps" in said


def test_numbers_are_written_over_the_foot_of_a_frame(small_run, tmp_path):
    files = [tmp_path / "plain.gif", tmp_path / "numbers.gif"]
    for file, extra in zip(files, ([], ["--overlay"]), strict=True):
        play([str(small_run), "--video", str(file), "--width", "160", *extra])
    images = []
    for file in files:
        with Image.open(file) as film:
            images.append(np.asarray(film.convert("RGB"), int))
    plain, numbers = images
    changed = np.abs(plain - numbers).max(axis=(1, 2)) > 60
    assert changed[-14:].all()
    assert not changed[:-20].any()


def test_a_moment_holds_q_of_the_action_taken(small_run):
    model = load_model(small_run)
    task = visible_task(model)
    moments = list(episode(model, model.greedy_policy(), task, (3, 0), drawn=[0, 5]))
    assert [moment.step for moment in moments if moment.frame is not None] == [0, 5]
    assert moments[-1].total == pytest.approx(sum(moment.reward for moment in moments))
    certificate = model.certify(moments[4].state)
    hidden = np.concatenate([moments[4].state, moments[4].action])
    for weights, bias in model.q_layers()[:-1]:
        hidden = np.maximum(hidden @ np.asarray(weights) + np.asarray(bias), 0)
    value = (hidden @ np.asarray(model.q_layers()[-1][0]) + np.asarray(model.q_layers()[-1][1]))[0]
    assert moments[4].q == pytest.approx(value, rel=1e-5)
    assert moments[4].q <= certificate.upper + 1e-5


def test_a_window_shows_frames_until_q_is_pressed():
    from caql.playing.sinks import Window

    with Window("caql") as window:
        image = Image.new("RGB", (32, 24), (200, 10, 10))
        assert window.show(image, 1000.0)
        assert pygame.display.get_surface().get_at((5, 5))[:3] == (200, 10, 10)
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_q))
        assert not window.show(image, 50.0)
    assert not pygame.display.get_init()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "no screen to open a window on; give --video FILE.mp4 or FILE.gif"),
        (["--video", "p.avi"], "video = p.avi must end in .gif or .mp4"),
        (["--video", "p.gif", "--episodes", "0"], "--episodes = 0 must be at least 1"),
        (["--video", "p.gif", "--width", "3"], "--width = 3 must be a number of pixels"),
        (["--video", "p.gif", "--speed", "0"], "--speed = 0.0 must be at least"),
    ],
)
def test_bad_input_is_one_sentence(small_run, arguments, sentence):
    with pytest.raises(CaqlError) as refused:
        play([str(small_run), *arguments])
    assert sentence in str(refused.value)


def test_what_is_missing_is_named_with_what_installs_it(small_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(CaqlError, match=r"p.mp4 needs imageio_ffmpeg, .* pip install \"caql\[video\]\""):
        play([str(small_run), "--video", str(tmp_path / "p.mp4")])


def test_a_film_that_breaks_off_leaves_nothing(tmp_path):
    from caql.playing.sinks import file_sink

    def break_off():
        with file_sink(tmp_path / "p.gif") as sink:
            sink.show(Image.new("RGB", (8, 8)), 10.0)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert not list(tmp_path.iterdir())


def test_a_task_without_a_picture_is_refused(small_run):
    from dataclasses import replace

    model = load_model(small_run)
    model.training.config = replace(model.config, task="Platform")
    with pytest.raises(CaqlError, match="task = 'Platform' has no picture of itself to show"):
        visible_task(model)


def test_a_strip_is_a_few_pictures(small_run):
    from caql.playing.strips import strip

    found = strip(load_model(small_run), 4, width=40)
    assert len(found) == 4
    assert all(address.startswith("data:image/jpeg;base64,") for address in found)


HOPPER = """
from caql.playing import screen
screen.prepare()
import contextlib
from caql.environments import make_task
from caql.playing.episodes import _follow, _frame
with contextlib.closing(make_task("Hopper", 1.0, render_mode="rgb_array")) as task:
    _follow(task)
    task.reset(seed=0)
    frame = _frame(task)
    assert frame.std() > 10, frame.std()
    print(frame.shape, task.unwrapped.mujoco_renderer.camera_id)
"""


def test_mujoco_draws_without_a_screen():
    pytest.importorskip("mujoco")
    if not any(screen.ctypes.util.find_library(library) for _, library in screen.OFF_SCREEN):
        pytest.skip("neither OSMesa nor EGL is here")
    found = subprocess.run([sys.executable, "-c", HOPPER], capture_output=True, text=True, check=False)
    assert found.stdout == "(480, 480, 3) 0\n", found.stderr
