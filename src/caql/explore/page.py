"""The page: what was computed, as JSON, with the scripts and the style that show it, in one file.

The page evaluates the network itself, from its float32 weights, wherever the reader looks; the solvers' stages are
stored.  It loads nothing: its content security policy allows no connection at all.
"""

from __future__ import annotations

import base64
import json
import re
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from caql import __version__
from caql.explore.shapes import polygons, spans
from caql.explore.subject import Array, Subject
from caql.explore.traces import Traces
from caql.maxq.arguments import checked_network
from caql.networks import folded_value
from caql.playing.episodes import Moment
from caql.playing.strips import address

SCRIPTS = ("network.js", "drawing.js", "landscape.js", "slices.js", "proof.js", "page.js")
FRAME_WIDTH = 300
DIGITS = 7


def _numbers(values: Any) -> Any:
    """Plain lists with no more digits than a float32 has."""
    if isinstance(values, list | tuple):
        return [_numbers(value) for value in values]
    if isinstance(values, np.ndarray):
        return _numbers(values.tolist())
    return float(f"{values:.{DIGITS}g}") if isinstance(values, float) else values


def _packed(array: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()


def _of_moment(moment: Moment) -> dict[str, Any]:
    found: dict[str, Any] = {"step": moment.step, "total": _numbers(moment.total), "reward": _numbers(moment.reward)}
    if moment.frame is not None:
        found["frame"] = address(moment.frame, FRAME_WIDTH)
    return found


def _state(subject: Subject, traces: Traces, index: int) -> dict[str, Any]:
    best = traces.best[index]
    found: dict[str, Any] = {
        "label": subject.labels[index],
        "x": _numbers(subject.states[index]),
        "best": _numbers(best),
        "value": float(traces.value[index]),
        "proved": bool(traces.proved[index]),
        "stages": [[stage.name, stage.value, stage.upper] for stage in traces.stages[index]],
        "guess": None if subject.guess is None else _numbers(subject.guess[index]),
        "ascents": None if traces.ascents is None else _numbers(traces.ascents[index]),
        "elites": None if traces.elites is None else _numbers(traces.elites[index]),
    }
    if not subject.sets.is_box:
        here = subject.sets[index]
        found |= {"shapes": _numbers(polygons(here, best)), "spans": _numbers(spans(here, best))}
        found["low"], found["high"] = _numbers(here.low), _numbers(here.high)
    if subject.moments is not None:
        found |= _of_moment(subject.moments[index])
    return found


def _first(subject: Subject, traces: Traces) -> int:
    """The state that is shown first.

    Of an action set, where it leaves the least room; else where an ascent ends furthest below the maximum, or, if all
    of them reach it, where the search is the longest.
    """
    if not subject.sets.is_box:
        room = [np.ptp(spans(subject.sets[index], best), axis=1).sum() for index, best in enumerate(traces.best)]
        return int(np.argmin(room))
    if traces.ascents is not None:
        network: Any = checked_network(subject.layers, subject.states)
        ends = folded_value(network, traces.ascents[:, :, -1].transpose(1, 0, 2))
        short = (traces.value - ends).max(axis=0) / np.maximum(1.0, np.abs(traces.value))
        if short.max() > 1e-3:
            return int(np.argmax(short))
    return int(np.argmax([len(stages) for stages in traces.stages]))


def data(subject: Subject, traces: Traces) -> dict[str, Any]:
    """Everything that the page's script is given."""
    sets = subject.sets
    return {
        "title": subject.title,
        "names": subject.names,
        "low": _numbers(np.atleast_2d(sets.low).min(axis=0)),
        "high": _numbers(np.atleast_2d(sets.high).max(axis=0)),
        "integer": [index for index in sets.integer if index < len(subject.names)],
        "box": sets.is_box,
        "first": _first(subject, traces),
        "step": float(subject.ascent.step_size),
        "iterations": int(subject.ascent.iterations),
        "layers": [
            {
                "rows": int(weights.shape[0]),
                "columns": int(weights.shape[1]),
                "weights": _packed(weights),
                "bias": _packed(bias),
            }
            for weights, bias in subject.layers
        ],
        "states": [_state(subject, traces, index) for index in range(len(subject.states))],
    }


def html(subject: Subject, traces: Traces, command: str) -> str:
    """The page, whole; `command` is what made it."""
    folder = files("caql.explore").joinpath("assets")
    read = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.css", *SCRIPTS)}
    facts = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in subject.facts)
    # `</` inside a string would end the script.
    stored = json.dumps(data(subject, traces), separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    parts = {
        "title": escape(subject.title),
        "facts": facts,
        "command": escape(command),
        "version": escape(__version__),
        "style": read["page.css"],
        "script": "\n".join(read[name] for name in SCRIPTS),
        "data": stored,
    }
    # All at once, so that nothing is replaced inside what was put in.
    return re.sub(r"%(\w+)%", lambda found: parts[found[1]], read["page.html"])
