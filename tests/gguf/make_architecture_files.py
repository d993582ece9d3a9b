#!/usr/bin/env python3
"""Makes architectures/*.gguf of the models in tests/golden/models, by llama.cpp's own converter.

    pip install -r scripts/train/requirements.txt gguf
    tests/gguf/make_architecture_files.py LLAMA_CPP

LLAMA_CPP is a checkout of llama.cpp (the files here: of September 2026, as llama-cpp-python 0.3.36
carries it). The models have no tokenizer: only the vocabulary's size is written.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parent / "golden" / "models"
NAMES = (
    "llama-biases",
    "mistral",
    "qwen2",
    "qwen3",
    "phi3",
    "gemma2",
    "gemma3",
    "granite",
    "smollm3",
    "mixtral",
    "qwen2-moe",
    "qwen3-moe",
)

# Run in a process of its own for each model: the converter keeps state.
CONVERT = """
import sys
llama_cpp, folder, out, name = sys.argv[1:]
sys.path[:0] = [llama_cpp, llama_cpp + "/gguf-py"]
import convert_hf_to_gguf as converter
from conversion.base import TextModel

find = converter.get_model_class

def without_vocabulary(*args, **kwargs):
    found = find(*args, **kwargs)
    classes = [TextModel]
    for parent in classes:
        classes += parent.__subclasses__()
        parent.set_vocab = lambda self: self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])
    return found

converter.get_model_class = without_vocabulary
sys.argv = ["convert", folder, "--outfile", out, "--outtype", "bf16", "--model-name", name]
converter.main()
"""


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    for name in NAMES:
        out = HERE / "architectures" / f"{name}.gguf"
        out.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            for file in (MODELS / name).iterdir():
                (pathlib.Path(folder) / file.name).write_bytes(file.read_bytes())
            # The converter of Gemma 3 counts tokens.
            tokenizer = {"model": {"vocab": {str(i): i for i in range(256)}}, "added_tokens": []}
            (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps(tokenizer))
            command = [sys.executable, "-c", CONVERT, sys.argv[1], folder, out, name]
            subprocess.run(command, check=True)
        print(out)


if __name__ == "__main__":
    main()
