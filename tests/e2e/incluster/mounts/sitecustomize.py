"""Moves the service account's volume, for nobody may mount anything at its fixed path on this machine.

Python imports this by itself before the program that it is asked to run, when this folder is on PYTHONPATH.
"""

import os

from kubernetes.config import incluster_config

for _name in ("SERVICE_TOKEN_FILENAME", "SERVICE_CERT_FILENAME"):
    setattr(incluster_config, _name, os.environ["MOUNTS"] + getattr(incluster_config, _name))
