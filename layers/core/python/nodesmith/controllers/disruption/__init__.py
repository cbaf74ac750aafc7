"""The controllers that end working nodes: disruption, interruption, repair; and moves."""
