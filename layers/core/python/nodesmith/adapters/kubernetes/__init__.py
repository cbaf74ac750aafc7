"""A Kubernetes API server, accessed over HTTP."""
