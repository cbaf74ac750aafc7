"""The pages of `nodesmith ui`, as values that templates render."""
