"""Spot capacity: which pools a run is launched in, and how much of one owner's work may be in one of them."""
