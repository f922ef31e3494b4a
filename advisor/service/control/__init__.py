"""`advisor control` put together: its life, the list of its features, the poll they share, what it publishes.

What has to know several features at once belongs here. A loop belongs in the package of what it does, and is
offered there as a :class:`~advisor.service.running.feature.Feature`.
"""
