"""Disruption: taking away nodes that work, because others would do better. Never more at once than budgets allow."""
