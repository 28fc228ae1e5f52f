"""The schema of what runs, benchmarks, jobs and exported models leave: writers and readers share these classes.

A file has its ``schema``. One that has none was written before there were schemas; what it lacks is filled in.
"""
