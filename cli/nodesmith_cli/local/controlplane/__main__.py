"""`python -m nodesmith_cli.local.controlplane` finds the programs, or builds them, and says where they are."""

import sys

from nodesmith.errors import Rejected
from nodesmith_cli.local.controlplane.binaries import find_binaries

try:
    print(f"control plane: {find_binaries(lambda line: print(line, flush=True))}")
except Rejected as error:
    sys.exit(f"nodesmith: {error}")
