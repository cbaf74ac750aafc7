"""EKS features that moto lacks, with EKS's refusals."""
