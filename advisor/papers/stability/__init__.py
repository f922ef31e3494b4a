"""Agarwal et al.: matching and acquisition on nodes that change."""
