"""Adapters to external systems, one package each: AWS, Kubernetes, and the files that nodesmith reads and writes.

Only this package and `runtime` import boto3 and the kubernetes client. An adapter translates. It makes no decisions,
and it does not expose the types or errors of the external system.
"""
