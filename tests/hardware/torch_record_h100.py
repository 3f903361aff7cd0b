"""Records what the cases of tests/oracle/torch_on_h100.py give on a GPU: ``… OUT.json.gz``.

What differs between two runs is left out. Needs torch, NumPy and tests/oracle.
"""

import gzip
import json
import sys
from datetime import date
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "oracle"))
from attentions import digest
from torch_on_h100 import FAMILIES


def main(out):
    results = {}
    for family in FAMILIES.values():
        for case, run in family():
            first, again = run(), run()
            results |= {
                f"{case}.{name}": digest(x)
                for name, x in first.items()
                if digest(x) == digest(again[name])
            }
    about = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(), "date": str(date.today()),
        "kept": "SHA-256, 24 digits, of the bytes of results and gradients",
    }  # fmt: skip
    text = json.dumps({"about": about, "results": results}).encode()
    Path(out).write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])
