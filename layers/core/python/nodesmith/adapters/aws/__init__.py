"""Code shared by all AWS adapters, and adapters for Lambda, SQS, STS sessions, EKS and SSM parameters."""
