"""User data as instances of each image family read it when they boot."""
