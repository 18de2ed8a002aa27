// Runs the benchmarks of an engine. Each function runs one benchmark and prints a table or one JSON object.
#pragma once

#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/cli/bench/statistics.h"
#include "tessera/cli/options.h"
#include "tessera/engine/engine.h"

namespace tessera::cli {

Status bench_prefill(const BenchOptions& options);
Status bench_decode(const BenchOptions& options);
// Measures each batch size in three forms: eagerly, with piecewise graphs, and as one graph. The forms run in turn.
Status bench_graphs(const BenchOptions& options);
Status bench_startup(const BenchOptions& options);
// Profiles forwards. Also writes a trace to options.output.
Status bench_profile(const BenchOptions& options);
// Measures a vision tower eagerly, with graphs for a few numbers of patches (budgets), and with a graph for each number
// of patches. Also measures the preparation of images.
Status bench_vision(const BenchOptions& options);

// Returns the engine's options with slots for the requested adapters. If the user gave no chunk size, a chunk is large
// enough for the longest requested prefill.
EngineOptions bench_engine_options(const BenchOptions& options);
// Returns kUnimplemented if there are several ranks. `bench` is the benchmark's name ("bench graphs"), and `what` names
// what the benchmark measures ("the forms of one rank").
Status refuse_ranks(const BenchOptions& options, std::string_view bench, std::string_view what);
// Returns a JSON object that describes the measurement and the engine: {"bench", "model", "dtype", "threads", …}.
Json bench_header(const BenchOptions& options, const Engine& engine);
// Returns the header as one line of text.
std::string bench_title(const BenchOptions& options, const Engine& engine);

}  // namespace tessera::cli
