"""Objects of Kubernetes: pods, nodes, budgets, events, and the shapes that alike pods share."""
