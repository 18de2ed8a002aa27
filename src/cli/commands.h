// The commands. Each does what its options say, prints its result to standard output, and returns its error. An error
// about a flag begins with the flag's name.
#pragma once

#include <span>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

Status run_generate(const GenerateOptions& options);
// Answers all requests of the file; fails at the end if one of the answers is an error.
Status run_batch(const BatchOptions& options);
Status run_chat(const ChatOptions& options);
// Serves until it is told to stop.
Status run_serve(const ServeOptions& options);
Status run_score(const ScoreOptions& options);
// Explains the plan; fails at the end if piecewise graphs would be off. `flags`: the command's flags.
Status run_explain(const ExplainOptions& options, std::span<const FlagValue> flags);
// Verifies the graphs; fails at the end if anything differs.
Status run_verify(const VerifyOptions& options);
Status run_bench(const BenchOptions& options);
// Measures a server under load; fails at the end if no request succeeded.
Status run_bench_serve(const BenchServeOptions& options);
Status run_tune(const TuneOptions& options);
Status run_pull(const PullCommandOptions& options);
Status run_cache(const CacheOptions& options);
Status run_make_checkpoint(const MakeCheckpointOptions& options);
Status run_quantize(const QuantizeOptions& options);

}  // namespace tessera::cli
