"""A log replayed in a closed loop: what one job does changes everybody's wait."""
