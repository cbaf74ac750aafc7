"""The controllers of kube-controller-manager that create pods, and the one that counts disruption budgets."""
