"""A program for a process outside the checkout: reads commands and Python as printed, and says what is wrong.

Standard input is JSON: ``commands``, lists of words, and ``blocks``, Python. So is standard output: sentences.
"""

import ast
import contextlib
import gc
import inspect
import io
import json
import sys


class Read(Exception):
    """The words were parsed and checked; what follows is the command itself."""


def stop(*args, **options):
    raise Read


def parsed(words):
    """What the command's own parser has against the words."""
    from ofmu_pl.cli import main

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            main(words)
    except Read:
        return []
    except SystemExit as end:
        return [] if not end.code else [f"{' '.join(words)}: {said.getvalue().splitlines()[-1:]}"]
    return []


def accepts(callable_, name):
    """Whether an argument of this name is taken; a class hands what it does not name on to its bases."""
    if inspect.isclass(callable_):
        inits = [vars(cls).get("__init__") for cls in callable_.__mro__]
        return any(name in inspect.signature(init).parameters for init in inits if inspect.isfunction(init))
    taken = inspect.signature(callable_).parameters
    return name in taken or any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())


def checked(text):
    """What of ours a block imports or calls that is not there; nothing but its imports runs."""
    tree, space = ast.parse(text), {}
    import lightning.pytorch as pl

    import ofmu_pl

    space.update(vars(ofmu_pl), ofmu_pl=ofmu_pl, pl=pl)
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(compile(ast.Module([node], []), "block", "exec"), space)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        owner, _, attribute = name.rpartition(".")
        callable_ = getattr(space.get(owner), attribute, None) if owner else getattr(ofmu_pl, name, space.get(name))
        if owner == "ofmu_pl" and callable_ is None:
            yield f"There is no {name}"
        if getattr(callable_, "__module__", "").startswith("ofmu_pl"):
            yield from (f"{name} takes no {k.arg}" for k in call.keywords if k.arg and not accepts(callable_, k.arg))


def main():
    """Read all, and print what is wrong."""
    gc.disable()  # the process is short
    given = json.load(sys.stdin)
    import ofmu_pl.cli.parser
    import ofmu_pl.cli.purge
    import ofmu_pl.finder.command
    import ofmu_pl.finder.lineage
    import ofmu_pl.report

    ofmu_pl.cli.parser.Parser.instantiate = stop
    ofmu_pl.finder.command.search = ofmu_pl.finder.lineage.trace = stop
    ofmu_pl.cli.purge.purge = ofmu_pl.report.report = stop
    wrong = [sentence for words in given["commands"] for sentence in parsed(words)]
    wrong += [sentence for text in given["blocks"] for sentence in checked(text)]
    json.dump({"place": ofmu_pl.__file__, "wrong": wrong}, sys.stdout)


if __name__ == "__main__":
    main()
