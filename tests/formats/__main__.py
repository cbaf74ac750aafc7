"""Write the formats of today's version beside this file: `python -m tests.formats`.

A folder is a version. That of a version that has been released stays as it is.
"""

from __future__ import annotations

from tests.formats.golden import written

if __name__ == "__main__":
    for path in written():
        print(path)
