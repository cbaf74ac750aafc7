"""Plans are made several times with other choices, bounded from below, and the best one is kept."""
