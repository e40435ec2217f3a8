"""The command line: `caql train | evaluate | play | explore | solve | sweep | report | watch | bench | audit`.

Each command is a module beside this one with a `main(args)`; only the one asked for is imported.
"""

from __future__ import annotations

import importlib
import os
import sys

COMMANDS = {
    "train": "train an agent on a task",
    "evaluate": "run a trained agent without exploration",
    "play": "show a trained agent, in a window or as a video",
    "explore": "a page that shows Q over the actions, what the solvers find, and the proof",
    "solve": "maximise a network, or a saved run's Q, over its actions",
    "sweep": "run the paper's experiments",
    "report": "tables and figures of finished runs, beside the paper's or each other's",
    "watch": "a live view of a run or a sweep",
    "bench": "measure the solvers side by side",
    "audit": "how far a Stable-Baselines3 actor falls short of its own critic's maximum",
}


def usage() -> str:
    """The overview that `caql --help` prints."""
    lines = [f"  {name:10} {what}" for name, what in COMMANDS.items()]
    return "usage: caql COMMAND [OPTIONS]\n\n" + "\n".join(lines) + "\n\ncaql COMMAND --help lists a command's options."


def main() -> None:
    """Entry point of the `caql` command."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        sys.exit(0 if arguments else 2)
    if arguments[0] == "--version":
        from caql import __version__

        print(__version__)
        return
    # Networks this small lose time to XLA's thread pool; the flag must be there before JAX starts.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    from caql.cli.output import system_errors
    from caql.errors import CaqlError, nearest

    command, *rest = arguments
    if command not in COMMANDS:
        print(f"caql: {command!r} is not a command; {nearest(command, COMMANDS)}", file=sys.stderr)
        sys.exit(2)
    try:
        with system_errors():
            importlib.import_module(f"caql.cli.{command}").main(rest)
    except CaqlError as problem:
        print(f"caql: {problem}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
