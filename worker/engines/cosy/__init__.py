"""What the engine ``cosyvoice`` is made of."""
