# SPDX-License-Identifier: Apache-2.0
"""``python -m tilescope ARGUMENTS``: the command line. ``cmake-dir`` and ``include-dir`` print folders."""

import sys
from pathlib import Path


def main() -> int:
    """Becomes the program that came with the package."""
    folders = {"cmake-dir": "lib/cmake/tilescope", "include-dir": "include/tilescope"}
    if len(sys.argv) == 2 and sys.argv[1] in folders:
        print(Path(__file__).parent / folders[sys.argv[1]])
        return 0
    from .program import become_the_program

    return become_the_program()


if __name__ == "__main__":
    sys.exit(main())
