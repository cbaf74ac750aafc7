"""Limits over nodes, in resources and in US dollars: quotas, and the region's SpendingLimits."""
