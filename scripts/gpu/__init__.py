"""What `scripts/gpu_check.py` is made of."""
