"""Kubernetes' API machinery: labels and selectors, quantities, times, and problems of objects."""
