"""Where a run's time goes: acting, physics, updating, max-Q, evaluating."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Clock:
    """Seconds spent, by part of the loop; never negative."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def time(self, part: str) -> Iterator[None]:
        """Count what happens inside towards a part, unless it raises."""
        began = time.perf_counter()
        yield
        self.add(part, time.perf_counter() - began)

    def add(self, part: str, seconds: float) -> None:
        """Count some seconds towards a part."""
        self.seconds[part] = self.seconds.get(part, 0.0) + max(seconds, 0.0)

    def move(self, source: str, target: str, seconds: float) -> None:
        """Count seconds that went to one part towards another instead, as far as there are any."""
        moved = min(max(seconds, 0.0), self.seconds.get(source, 0.0))
        self.add(target, moved)
        self.seconds[source] = self.seconds.get(source, 0.0) - moved
