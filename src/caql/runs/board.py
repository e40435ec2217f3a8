"""TensorBoard's event files, written at once and in this thread, so that a full disk is an error here and now."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from caql.extras import needed_for


class Board:
    """One event file in `folder`; `step` hides what an earlier, interrupted process wrote from there on."""

    def __init__(self, folder: Path, step: int) -> None:
        with needed_for("a TensorBoard log"):
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder.mkdir(parents=True, exist_ok=True)
        self.writer = EventsWriter(str(folder / "events"))
        if step:
            self.writer.write_event(Event(step=step, file_version="brain.Event:2"))
            self.writer.write_event(Event(step=step, session_log=SessionLog(status=SessionLog.START)))

    def add(self, values: Mapping[str, Any], step: int) -> None:
        """Every number among the values, at a step."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        for name, value in values.items():
            if isinstance(value, int | float):
                self.writer.write_event(Event(wall_time=time.time(), step=step, summary=scalar(name, value)))
        self.writer.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self.writer.close()
