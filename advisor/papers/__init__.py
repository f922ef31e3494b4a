"""The published experiments: worlds and tables of five papers. Nothing live imports it."""
