"""A cluster of nodes that grow, shrink and vanish: harvest VMs and spot instances."""
