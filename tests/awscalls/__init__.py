"""The calls to AWS that tests make in a role's name, read as IAM reads them, and asked of that role's policy.

`requests` and `ec2requests` read a request: actions, resources, condition keys. `policies` has the statements of the
roles, as the CDK synthesises them. `acting` gives clients that say for whom they ask, `recording` listens to moto and
judges, `plugin` fails tests and lists what is never called.
"""
