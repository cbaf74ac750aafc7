"""Guided drains of node groups, and the way back: what exists, what keeps a group from being drained, and the steps.

`assessment` compares groups, nodes and pods, `drain` and `undo` change them, and the commands ask and print.
"""
