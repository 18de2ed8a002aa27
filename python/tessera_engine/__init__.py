"""Tessera, an LLM inference engine, within a Python process.

    from tessera_engine import Engine
    with Engine("models/demo") as engine:
        print(engine.generate("Once upon a time", {"max_new_tokens": 40})["text"])

Engine has the interface of sglang.Engine. LLM is the same engine with the interface of vllm.LLM. The engine itself is
libtessera.so, which contains no Python. docs/python.md is the guide."""

from ._library import TesseraError, version
from .engine import Engine
from .llm import LLM, LoRARequest, SamplingParams

__all__ = ["Engine", "LLM", "LoRARequest", "SamplingParams", "TesseraError", "version"]
__version__ = version()
