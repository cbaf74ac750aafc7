"""What Kubernetes calls API machinery: labels and selectors, quantities, times, and what is wrong with an object."""
