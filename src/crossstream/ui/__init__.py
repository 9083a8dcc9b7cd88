"""The page that shows an application while it runs, or after: a small web server, read only.

`server` answers the browser with what a `source` knows: of the application in this process, or of a state folder.
Nothing here is imported without ``ui_port``, ``--ui`` or `crossstream ui`.
"""
