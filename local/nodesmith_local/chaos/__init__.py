"""Faults of the services that functions call, or that call functions, in a local system: `nodesmith chaos`.

`faults` has the table of faults, which tests use as well. `active` keeps those that are under way, `calls` and `reads`
let calls of functions and of forwarders fail, and `control` is what the command talks to.
"""
