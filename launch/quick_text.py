"""Commands that build the quick start's text, tokenizer and data; experiments use them too."""
import configparser
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHIFTRON = os.environ.get("SHIFTRON", "build/release/shiftron")
SPLITS = ("train", "held-out")


def read_config(path):
    parser = configparser.ConfigParser(strict=False, inline_comment_prefixes=("#",), interpolation=None)
    parser.read(path)
    return parser


def corpus(out):
    return ["launch/corpus", out / "corpus"]


def tokenizer(out):
    """Run it after corpus()."""
    return [SHIFTRON, "tokenizer", "train", "--input", *sorted((out / "corpus" / "train").glob("*.jsonl")),
            "--vocab", read_config(ROOT / "configs" / "quickstart.conf")["model"]["vocab"], "--output", out / "tokenizer.model"]


def data(out, split):
    """Builds the dataset OUT/data/SPLIT. Run it after tokenizer()."""
    return [SHIFTRON, "data", "build", "--input", *sorted((out / "corpus" / split).glob("*.jsonl")),
            "--tokenizer", out / "tokenizer.model", "--output", out / "data" / split]
