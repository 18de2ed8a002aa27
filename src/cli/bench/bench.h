// The benchmarks of an engine. Each prints a table or one JSON object.
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
// Measures each size in all its forms alternately: operators one by one, graphs of pieces, one graph.
Status bench_graphs(const BenchOptions& options);
Status bench_startup(const BenchOptions& options);
// Profiles forwards and also writes a trace to options.output.
Status bench_profile(const BenchOptions& options);
// Measures a vision tower run eagerly and through both kinds of graphs, and the preparation of its images.
Status bench_vision(const BenchOptions& options);

// Returns the engine's options, changed so that the longest requested forward fits into the engine.
EngineOptions bench_engine_options(const BenchOptions& options);
// Returns kUnimplemented if there are several ranks. `bench` names the benchmark ("bench graphs"), and `what` the thing
// that it times.
Status refuse_ranks(const BenchOptions& options, std::string_view bench, std::string_view what);
// Returns a JSON object that describes the measurement and the engine: {"bench", "model", "dtype", "threads", …}.
Json bench_header(const BenchOptions& options, const Engine& engine);
// Returns the header as one line of text.
std::string bench_title(const BenchOptions& options, const Engine& engine);

}  // namespace tessera::cli
