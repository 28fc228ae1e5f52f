"""Imported first where workers are forked from, so that libraries find nothing of others in the working folder."""

from ofmu_pl.support.trust import restrict_imports

restrict_imports()
