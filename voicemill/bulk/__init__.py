"""Many texts at once: a CSV in, audio and two CSVs out, resumable.

``table`` reads and checks, ``rows`` knows what each row asks, ``folder`` and
``manifest`` keep what is done, ``runner`` sends and collects, ``report``
writes the results.
"""
