"""Mutation tests: does a test fail if a decision or an effect changes a little?

    python -m tests.mutation --seed 1 --mutants 600        draws mutants, and runs for each the tests that reach it

A mutant is the code with one small change (`mutants`). It is killed if a test fails or exceeds its time, and survives
otherwise. Survivors show what no test asserts, or changes that have no effect.
"""
