# SPDX-License-Identifier: Apache-2.0
"""``python -m tilescope ARGUMENTS``: the command line. ``cmake-dir`` and ``include-dir`` print folders."""

import os
import sys
from pathlib import Path


def main() -> int:
    """Becomes the program that came with the package."""
    package = Path(__file__).parent
    folders = {"cmake-dir": "lib/cmake/tilescope", "include-dir": "include/tilescope"}
    if len(sys.argv) == 2 and sys.argv[1] in folders:
        print(package / folders[sys.argv[1]])
        return 0
    program = package / "bin" / "tilescope"
    if not program.exists():
        print("tilescope: this installation has the module without the program", file=sys.stderr)
        return 3
    from .counting import cupti_of_this_python

    if cupti := cupti_of_this_python():  # that of the commands which `profile` starts
        os.environ.setdefault("TILESCOPE_CUPTI", cupti)
    os.execv(program, ["tilescope", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
