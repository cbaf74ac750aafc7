"""`python -m nodesmith_local.controlplane` finds or builds the programs, and prints their folder."""

import sys

from nodesmith.errors import Rejected
from nodesmith_local.controlplane.binaries import find_binaries

try:
    print(f"control plane: {find_binaries(lambda line: print(line, flush=True))}")
except Rejected as error:
    sys.exit(f"nodesmith: {error}")
