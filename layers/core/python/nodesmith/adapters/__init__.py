"""The outside systems, one module each: AWS, Kubernetes, and the files nodesmith reads and writes.

Here, and only here and in `runtime`, boto3 and the kubernetes client are imported. An adapter translates; it decides
nothing, and lets nothing of the outside's types or errors through.
"""
