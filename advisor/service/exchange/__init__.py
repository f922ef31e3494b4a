"""The formats, files and sockets by which the processes of the advisor talk to each other.

Everything that one process writes and another reads is here, with its limits and permissions. Nothing here
decides anything.
"""
