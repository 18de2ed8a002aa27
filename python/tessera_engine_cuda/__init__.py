"""The CUDA backend of tessera_engine, which finds it beside itself: nothing here needs to be imported."""
