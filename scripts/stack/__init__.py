"""What ``scripts/up.py`` is made of: the parts of a stack, and who watches over them."""
