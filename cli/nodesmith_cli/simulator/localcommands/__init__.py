"""What `nodesmith local` and `nodesmith demo` do; the only commands that use the simulator."""
