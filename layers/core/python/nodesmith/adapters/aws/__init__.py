"""What all of AWS's services share, and the small ones: STS sessions, EKS, SSM parameters."""
