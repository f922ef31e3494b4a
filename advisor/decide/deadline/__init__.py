"""A job with a deadline between two markets of the cloud: wait, spot, or on-demand."""
