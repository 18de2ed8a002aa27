"""Tessera, an LLM inference engine, within a Python process.

    from tessera_engine import Engine
    with Engine("models/demo") as engine:
        print(engine.generate("Once upon a time", {"max_new_tokens": 40})["text"])

Shaped like sglang.Engine; LLM is the same engine shaped like vllm.LLM. The engine itself is libtessera.so and has no Python in
it; docs/python.md is the guide."""

from ._library import TesseraError, version
from .engine import Engine
from .llm import LLM, SamplingParams

__all__ = ["Engine", "LLM", "SamplingParams", "TesseraError", "version"]
__version__ = version()
