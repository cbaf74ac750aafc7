"""How other processes find a running `nodesmith local up`: its kubeconfig, its AWS and its clock."""
