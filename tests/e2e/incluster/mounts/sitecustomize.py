"""Moves the service account's volume, for nobody may mount anything at its fixed path on this machine.

Python imports this by itself before the program that it is asked to run, when this folder is on PYTHONPATH.
"""

import os
from pathlib import Path

from nodesmith_forwarder import serviceaccount

serviceaccount.FOLDER = Path(os.environ["MOUNTS"] + str(serviceaccount.FOLDER))
