"""The commands that use the simulator: `local`, `chaos` and `demo`; `simulate`."""
