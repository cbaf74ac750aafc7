"""Views of a cluster and of what it can buy: `nodesmith status`, `top`, `ui` and `catalog`."""
