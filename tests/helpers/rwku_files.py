"""RWKU's files, of invented towns."""

import json

TOWNS = {"1_Old_Falbro": "Kesh", "2_Mirra": "Dorn", "10_Tal": "Ulm"}
"""Folders of subjects, and the river of each."""


def question(subject, level, query, answer, kind="simple question", **more):
    return {"subject": subject, "level": str(level), "query": query, "answer": answer, "type": kind, **more}


def parts(folder):
    """A subject's files as RWKU's data_process.py writes them."""
    subject, river = folder.split("_", 1)[1].replace("_", " "), TOWNS[folder]
    ask = f"Which river is in {subject}?"
    return {
        "positive": [{"subject": subject, "text": f"{subject} lies on the {river}. " * 3}],
        "forget_level1": [question(subject, 1, f"{subject} lies on the ___.", river, "cloze")],
        "forget_level2": [question(subject, 2, ask, river)],
        "forget_level3": [
            question(subject, 3, f"I am lost. {ask}", river, "role play"),
            question(subject, 3, f"{ask} Sure, it is the", river, "affirmative suffix"),
            question(subject, 3, f"Question: Who?\nAnswer: I\nQuestion: {ask}", river, "incontext learning"),
        ],
        "neighbor_level1": [question(subject, 1, "Near it lies ___.", "Ovar", "cloze", neighbor="Ovar")],
        "neighbor_level2": [question(subject, 2, "What lies near it?", "Ovar", neighbor="Ovar")],
    }


def written(place, changed=None):
    """The folders of all towns; ``changed`` has files by ``FOLDER/PART``, or ``None`` for one that is not there."""
    for folder in TOWNS:
        (place / folder).mkdir(exist_ok=True)
        for name, usual in parts(folder).items():
            rows = (changed or {}).get(f"{folder}/{name}", usual)
            if rows is not None:
                (place / folder / f"{name}.json").write_text(json.dumps(rows))
    return str(place)
