"""The clusters of a local system: embedded or on a real control plane, with one interface to their objects."""
