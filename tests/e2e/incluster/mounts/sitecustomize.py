"""Move the service account's volume, because its fixed path cannot be mounted on this machine.

Python imports this before the program that it runs, if this folder is on PYTHONPATH.
"""

import os
from pathlib import Path

from nodesmith_forwarder import serviceaccount

serviceaccount.FOLDER = Path(os.environ["MOUNTS"] + str(serviceaccount.FOLDER))
