"""The command line: ``python -m ellect recommend matrix.mtx --device h200``."""

import signal
import sys

from ._ellect import run_program


def main() -> int:
    """Run the command line with the arguments of this process and return its exit code."""
    # Python only notes an interrupt, which would wait for the end of the command.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Processes that measure run the package that is installed, not one in the current folder.
    return run_program(sys.argv[1:], (sys.executable, ["-P", "-m", "ellect"]))


if __name__ == "__main__":
    sys.exit(main())
