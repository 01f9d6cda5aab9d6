"""The HTTP face: requests in, problem details and JSON out."""
