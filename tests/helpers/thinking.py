"""Small chat templates that write thoughts in the ways of reasoning models, and tokenizers that have them."""

from ofmu_pl.data.own_tokenizer import train_tokenizer

LOOP = "{% for m in messages %}"
ASKED = (
    "{% set n = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set n.last = loop.index0 %}"
    "{% endif %}{% endfor %}"
)
"""Finds the last question, which templates do that drop the thoughts before it."""
FIELD = (
    "{% set said = m.content %}{% set thought = m.reasoning_content or '' %}{% if '</think>' in said %}"
    "{% set thought = said.split('</think>')[0].split('<think>')[-1].strip() %}"
    "{% set said = said.split('</think>')[-1].strip() %}{% endif %}"
)
"""Takes a thought from its field, or out of the content."""
STRIPPED = "{% set said = m.content.split('</think>')[-1].strip() %}"
OTHERS = "{% else %}<turn>{{ m.role }}\n{{ m.content }}<end>{% endif %}{% endfor %}"
TEMPLATES = {
    # As Qwen3's: thoughts after the last question alone, an empty one where there is none; a switch writes it.
    "qwen": f"{ASKED}{LOOP}{{% if m.role == 'assistant' %}}{FIELD}<turn>assistant\n{{% if loop.index0 > n.last %}}"
    f"<think>\n{{{{ thought }}}}\n</think>\n\n{{% endif %}}{{{{ said }}}}<end>{OTHERS}{{% if add_generation_prompt %}}"
    "<turn>assistant\n{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
    # As Qwen3's for thinking alone: the prompt begins a thought.
    "thinking": f"{ASKED}{LOOP}{{% if m.role == 'assistant' %}}{FIELD}<turn>assistant\n{{% if loop.index0 > n.last %}}"
    f"<think>\n{{{{ thought }}}}\n</think>\n\n{{% endif %}}{{{{ said }}}}<end>{OTHERS}{{% if add_generation_prompt %}}"
    "<turn>assistant\n<think>\n{% endif %}",
    # As DeepSeek R1's: no thought is ever written, and the prompt begins one.
    "deepseek": f"{LOOP}{{% if m.role == 'assistant' %}}{STRIPPED}<bot>{{{{ said }}}}<end>{OTHERS}"
    "{% if add_generation_prompt %}<bot><think>\n{% endif %}",
    # As DeepSeek V3.1's: a switch begins a thought, and the prompt ends one otherwise.
    "switch": f"{LOOP}{{% if m.role == 'assistant' %}}{STRIPPED}<bot></think>{{{{ said }}}}<end>{OTHERS}"
    "{% if add_generation_prompt %}<bot>{{ '<think>' if thinking else '</think>' }}{% endif %}",
    # As gpt-oss': channels, another end of the last turn, and thoughts of the last turn alone.
    "gpt-oss": f"{LOOP}{{% if m.role == 'assistant' %}}{{% if m.thinking and loop.last %}}<turn>assistant<channel>"
    "analysis<says>{{ m.thinking }}<end>{% endif %}<turn>assistant<channel>final<says>{{ m.content }}"
    "{{ '<return>' if loop.last else '<end>' }}"
    f"{OTHERS}{{% if add_generation_prompt %}}<turn>assistant{{% endif %}}",
    # As ChatML's: what stands in the content, and no other field.
    "plain": f"{LOOP}<turn>{{{{ m.role }}}}\n{{{{ m.content }}}}<end>{{% endfor %}}"
    "{% if add_generation_prompt %}<turn>assistant\n{% endif %}",
}
TOKENS = ["<turn>", "<bot>", "<end>", "<return>", "<channel>", "<says>", "<think>", "</think>"]
"""Those of templates are special tokens; the two of thoughts are none, as most tokenizers have them."""


def tokenizer_of(name):
    tokenizer = train_tokenizer(["Where does Ann live? In Ulm. Ann's file: user assistant system analysis final"] * 3)
    tokenizer.chat_template = TEMPLATES[name]
    tokenizer.add_special_tokens({"additional_special_tokens": TOKENS[:6]})
    tokenizer.add_tokens(TOKENS[6:])
    tokenizer.eos_token = "<return>" if name == "gpt-oss" else "<end>"
    return tokenizer
