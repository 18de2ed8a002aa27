// The commands. Each does what its options say, prints its result on standard output, and returns its error. An error
// about a flag begins with the flag's name.
#pragma once

#include <span>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

Status run_generate(const GenerateOptions& options);
// Fails after its answers if one of them is an error.
Status run_batch(const BatchOptions& options);
Status run_chat(const ChatOptions& options);
// Serves until it is told to stop.
Status run_serve(const ServeOptions& options);
Status run_score(const ScoreOptions& options);
// `flags`: the command's flags. Fails after its answer if piecewise graphs would be off.
Status run_explain(const ExplainOptions& options, std::span<const FlagValue> flags);
// Fails after its answer if anything differs.
Status run_verify(const VerifyOptions& options);
Status run_bench(const BenchOptions& options);
// Fails after its answer if no request succeeded.
Status run_bench_serve(const BenchServeOptions& options);
Status run_tune(const TuneOptions& options);
Status run_pull(const PullCommandOptions& options);
Status run_cache(const CacheOptions& options);
Status run_make_checkpoint(const MakeCheckpointOptions& options);

}  // namespace tessera::cli
