"""Kubernetes' own kinds: fields, defaults, names, selectors, and the checks of the API server."""
