"""Code shared by all AWS adapters, and adapters for STS sessions, EKS and SSM parameters."""
