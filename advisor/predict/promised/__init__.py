"""What promises need to know: how waits are spread around their plan, and how often promises were kept."""
