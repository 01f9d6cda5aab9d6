"""What `scripts/doctor.py` is made of."""
