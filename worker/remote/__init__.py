"""An engine in a Python of its own: ``engine`` is this side, ``keeper`` and ``host`` the other.

What runs on the other side keeps to the syntax and the library of Python 3.10 and needs ``numpy``
alone, and so do all the modules that an engine may import from us.
"""
