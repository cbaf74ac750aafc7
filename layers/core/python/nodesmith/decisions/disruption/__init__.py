"""Disruption: remove working nodes that other nodes would replace better, never more at once than budgets allow.

`search` is the entry point: `propose` searches for moves, `look_again` validates moves whose sources are tainted, and
`may_end` checks a move before its sources end. `docs/algorithms/disruption.md` walks through the algorithm. This module
imports nothing, because other packages need only the budgets.
"""
