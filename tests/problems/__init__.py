"""Problems to break the solver with, and references to hold its answers against; none shares code with `decisions`.

`firstfit` packs as Karpenter does, `lpbound` proves what no plan can undercut, `bruteforce` finds the best plan of a
small problem, `drawing` makes problems that mix every kind of constraint, `planning` is the one way in to nodesmith.
"""
