"""The cluster of two papers: EASY backfilling with classes, killed attempts and a cloud partition."""
