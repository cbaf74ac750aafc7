"""A Kubernetes API server, spoken to by HTTP."""
