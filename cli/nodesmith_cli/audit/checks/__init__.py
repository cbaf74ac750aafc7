"""The checks of each place, each purchase and each NodePool by itself. Checks between pods are in `topology/`."""
