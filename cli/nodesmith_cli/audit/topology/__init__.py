"""The checks between pods: topology spread, pod affinity and anti-affinity."""
