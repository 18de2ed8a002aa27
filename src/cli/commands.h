// Each function runs one command with the given options, prints the result to standard output, and returns an error if
// the command fails. An error about a flag begins with the flag's name.
#pragma once

#include <span>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

Status run_generate(const GenerateOptions& options);
// Answers all requests of the file. If one of the answers is an error, returns an error after all requests have been
// answered.
Status run_batch(const BatchOptions& options);
Status run_chat(const ChatOptions& options);
// Serves until a signal stops it.
Status run_serve(const ServeOptions& options);
Status run_score(const ScoreOptions& options);
// Explains the plan. Returns an error at the end if piecewise graphs would be off. `flags` are the command's flags.
Status run_explain(const ExplainOptions& options, std::span<const FlagValue> flags);
// Verifies the graphs. Returns an error at the end if anything differs.
Status run_verify(const VerifyOptions& options);
Status run_bench(const BenchOptions& options);
// Measures a server under load. Returns an error at the end if no request succeeded.
Status run_bench_serve(const BenchServeOptions& options);
Status run_tune(const TuneOptions& options);
Status run_pull(const PullCommandOptions& options);
Status run_cache(const CacheOptions& options);
Status run_make_checkpoint(const MakeCheckpointOptions& options);
Status run_quantize(const QuantizeOptions& options);
Status run_calibrate(const CalibrateOptions& options);

}  // namespace tessera::cli
