"""The model card of an exported model: ``README.md`` as the hub reads it."""

from huggingface_hub import ModelCard, ModelCardData

from ofmu_pl.evaluation.account import Account
from ofmu_pl.evaluation.attacked import parts
from ofmu_pl.evaluation.table import figure
from ofmu_pl.support.escapes import visible
from ofmu_pl.support.files import replacing
from ofmu_pl.support.pages import CARD, plain, templates

KINDS = {"text": ("transformers", "text-generation"), "images": ("ofmu_pl", "image-classification")}
"""The library that loads the model and its task on the hub, by modality."""


def write_card(account: Account) -> None:
    """Write the card into the model's folder, whole or not at all; nothing where no model was exported."""
    if account.model is None:
        return
    with replacing(account.model / CARD) as temporary:
        temporary.write_text(str(card(account)), encoding="utf-8")


def card(account: Account) -> ModelCard:
    """Make the card. It has no licence, which is the base model's and not known."""
    library, task = KINDS[account.modality]
    head = ModelCardData(
        library_name=library,
        pipeline_tag=task,
        base_model=account.base_model,
        tags=["machine-unlearning", "ofmu", account.method.lower()],
    )
    made = templates("ofmu_pl.evaluation", escapes=False, text=plain, code=code, number=figure)
    body = made.get_template("card.jinja").render(a=account, attacks=parts(CARD, account.modality))
    return ModelCard(f"---\n{head.to_yaml()}\n---\n\n{body}")


def code(text: object) -> str:
    """Text in one line as code; what would end it, or a cell of a table, or begin a mark, is replaced.

    >>> code("a`|b")
    "`a'/b`"
    """
    line = visible(" ".join(str(text).split())).replace("`", "'").replace("|", "/").replace("<!--", "<! --")
    return f"`{line}`" if line else ""
