"""What keeps a cluster from being served, or may soon do so, as findings. Each module has the checks of one subject."""
