"""The cluster of two papers: EASY backfilling with job classes and killed attempts."""
