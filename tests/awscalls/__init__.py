"""Checks the tests' calls to AWS against the policies of the roles that make them.

`requests` and `ec2requests` turn a request into actions, resources and condition keys, as IAM sees it. `policies` holds
the roles' statements, as the CDK synthesises them. `acting` provides clients that name their role, `recording` listens
to moto and evaluates calls, and `plugin` fails tests and lists granted actions that are never called.
"""
