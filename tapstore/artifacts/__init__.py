"""The bytes that agents hand to each other: published, verified, fetched and collected.

Import the module you need.  Nothing here registers anything: that is a commit of the session.
"""
