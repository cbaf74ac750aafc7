"""Shadows of an observed cluster: fleets that live through its events without existing."""
