"""What controllers count and measure for Prometheus."""
