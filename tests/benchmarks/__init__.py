"""Benchmarks: `python -m tests.benchmarks` measures figures with goals and writes build/benchmarks.json.

Machines differ and are shared, so each time is shown beside a reference loop measured in the same minute. Only the
ratio can be compared between machines.
"""
