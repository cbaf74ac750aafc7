"""Test environments for `nodesmith image push`: a strict in-process registry, the CNCF's registry, bases, wheels."""
