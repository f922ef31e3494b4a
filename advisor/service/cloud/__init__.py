"""Machines in EC2 and their money: launch, watch, terminate; prices and budgets.

Here belongs what asks EC2 for something and what a node costs (docs/designs/0008-launch-protocol.md).
"""
