// The benchmarks of an engine. Each prints a table, or one JSON object.
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
// Runs every form of every size in turn: operators one by one, pieces, one graph.
Status bench_graphs(const BenchOptions& options);
Status bench_startup(const BenchOptions& options);
// Profiles forwards, and also writes a trace to options.output.
Status bench_profile(const BenchOptions& options);
// Runs a vision tower eagerly and through both kinds of graphs, and times how images are prepared for it.
Status bench_vision(const BenchOptions& options);

// The engine's options, changed to take the longest forward that is asked for.
EngineOptions bench_engine_options(const BenchOptions& options);
// kUnimplemented where there are several ranks: `bench`, as in "bench graphs", times `what` alone.
Status refuse_ranks(const BenchOptions& options, std::string_view bench, std::string_view what);
// What was measured, on what: {"bench", "model", "dtype", "threads", …}
Json bench_header(const BenchOptions& options, const Engine& engine);
// The header as one line of text.
std::string bench_title(const BenchOptions& options, const Engine& engine);

}  // namespace tessera::cli
