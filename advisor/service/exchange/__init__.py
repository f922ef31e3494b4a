"""What goes between the processes: sockets, files, and the formats of both.

Here belongs whatever one process writes and another reads, with its limits and who may touch it. Nothing here
decides anything.
"""
