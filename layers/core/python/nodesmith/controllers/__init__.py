"""The controller of each concern: load, decide, carry out. Controllers contain no rules, only the order of steps."""
