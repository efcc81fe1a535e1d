"""Run the program ``ellect``: ``python -m ellect recommend matrix.mtx --device h200``."""

import os
import shutil
import sys


def main() -> int:
    """Replace this process by the program, found in ELLECT_PROGRAM or on the search path."""
    program = os.environ.get("ELLECT_PROGRAM") or shutil.which("ellect")
    if program is None:
        print(
            "error: the program ellect is not on the search path; build it with `cargo build "
            "--release` and name it in the variable ELLECT_PROGRAM",
            file=sys.stderr,
        )
        return 2
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        print(f"error: cannot start {program}: {error.strerror}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
