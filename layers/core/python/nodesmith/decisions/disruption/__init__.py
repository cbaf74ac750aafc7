"""Disruption: taking away nodes that work, because others would do better. Never more at once than budgets allow.

`search` is the way in: `propose` looks for moves, `look_again` at those whose sources are closed to new pods, `may_end`
before these end. Nothing is imported here, for others need the budgets only.
"""
