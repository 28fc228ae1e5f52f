"""Names of evaluation sets, which data modules give and metrics know."""

SETS = {
    "forget": "forget",
    "forget_paraphrased": "forget_paraphrased",
    "retain": "retain",
    "real_authors": "ra",
    "world_facts": "wf",
}
"""Evaluation sets and the prefixes of their metrics' names."""

HOLDOUT = "holdout"
"""Evaluation set of rows that no model has seen: what membership attacks compare forgotten rows with."""

PROBE = "probe_"
"""Beginning of the names of probe sets, ``probe_NAME_forget`` and ``probe_NAME_retain``, which ask otherwise for the
facts of these two sides. Their names are the prefixes of their metrics."""

REQUEST = "request_"
"""Beginning of the names of evaluation sets that hold what another request named, ``request_03`` and, of documents,
``request_03_doc``. Their names are the prefixes of their metrics."""

DOCUMENTS = ("forget_doc", "retain_doc", "holdout_doc")
"""Evaluation sets of pieces of text without questions; their names are the prefixes of their metrics."""


def is_probe(name: str) -> bool:
    """Whether an evaluation set is a probe."""
    return name.startswith(PROBE)


def is_request(name: str) -> bool:
    """Whether an evaluation set holds what another request than the run's own named."""
    return name.startswith(REQUEST)


def is_document(name: str) -> bool:
    """Whether an evaluation set holds pieces of text without questions."""
    return name in DOCUMENTS or (is_request(name) and name.endswith("_doc"))


def forgets(name: str) -> bool:
    """Whether an evaluation set (or a split) holds what must be forgotten."""
    return name.startswith("forget") or is_request(name) or (is_probe(name) and name.endswith("_forget"))


def prefix_of(name: str) -> str | None:
    """Prefix of the metrics of an evaluation set; ``None`` for a set that has none of its own (``holdout``)."""
    return name if is_probe(name) or is_request(name) else SETS.get(name)
