"""Adapters to external systems, one package each: AWS, Kubernetes, and the files that nodesmith reads and writes.

Only this package and `parts` import boto3 or botocore, and only this package imports urllib3. An adapter translates. It
makes no decisions, and it does not expose the types or errors of the external system.
"""
