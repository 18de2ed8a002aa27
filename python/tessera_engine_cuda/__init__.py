"""The CUDA backend of tessera_engine, which finds this package next to its own. It need not be imported."""
