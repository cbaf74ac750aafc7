"""Random problems for the solver, and references for its answers, which share no code with `decisions`.

`firstfit` packs as Karpenter does, `lpbound` proves a lower bound on the price, `bruteforce` finds the best plan of a
small problem, `drawing` generates problems that mix every kind of constraint, and `planning` is the interface to
nodesmith.
"""
