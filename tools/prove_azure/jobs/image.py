"""Imports the framework of our image, and writes into the working folder."""

import os
from pathlib import Path

import torch

Path("written-here").write_text("x", encoding="utf-8")
print("torch", torch.__version__, "as uid", os.getuid())
