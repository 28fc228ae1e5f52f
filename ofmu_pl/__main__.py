"""``python -m ofmu_pl``."""

from ofmu_pl.cli import main

main()
