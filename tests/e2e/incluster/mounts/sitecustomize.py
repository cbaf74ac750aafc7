"""Move the service account's volume, because its fixed path cannot be mounted on this machine.

Python imports this before the program that it runs, if this folder is on PYTHONPATH.
"""

import os

from kubernetes.config import incluster_config

for _name in ("SERVICE_TOKEN_FILENAME", "SERVICE_CERT_FILENAME"):
    setattr(incluster_config, _name, os.environ["MOUNTS"] + getattr(incluster_config, _name))
