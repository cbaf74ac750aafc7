"""What the goals are held against: `python -m tests.benchmarks` measures and writes build/benchmarks.json.

Machines differ and are shared, so each time is shown beside a reference loop measured in the same minute: the ratio is
what can be compared between machines.
"""
