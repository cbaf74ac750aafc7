"""Kubernetes' own kinds as its API server knows them: fields, defaults, names, selectors, and what it refuses."""
