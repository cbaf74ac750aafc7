"""A running `nodesmith local up` as other processes find it: its kubeconfig, its AWS and its clock."""
