"""The command `valuelens`: Ctrl-C is one line from here on, also while the command line itself is imported."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line."""
    try:
        from valuelens.cli import main as run
    except KeyboardInterrupt:
        print("valuelens: interrupted; nothing was begun", file=sys.stderr)  # noqa: T201
        sys.exit(130)
    run()
