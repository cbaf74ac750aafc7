"""The controllers that serve a whole region: catalogue, commitments, dispatch, routing."""
