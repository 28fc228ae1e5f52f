"""Makes the pages about single methods and metrics, and the API reference; ``docs/generate.py`` writes them."""
