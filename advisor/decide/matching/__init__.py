"""Which job goes to which node, and which nodes are exchanged (Agarwal et al.)."""
