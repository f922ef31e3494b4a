"""Floor 7: instances, pools, prices and what EC2's errors mean. Match by id, never by address or name."""
