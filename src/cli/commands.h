// The commands. Each does what its options say, with its answer on standard output, and returns why
// it could not. An error about a flag begins with the flag's name.
#pragma once

#include <span>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

Status run_generate(const GenerateOptions& options);
// Fails after its answers where one of them is an error.
Status run_batch(const BatchOptions& options);
Status run_chat(const ChatOptions& options);
// Serves until it is told to stop.
Status run_serve(const ServeOptions& options);
Status run_score(const ScoreOptions& options);
// `flags`: the command's. Fails after its answer where piecewise graphs would be off.
Status run_explain(const ExplainOptions& options, std::span<const FlagValue> flags);
// Fails after its answer where anything differs.
Status run_verify(const VerifyOptions& options);
Status run_bench(const BenchOptions& options);
// Fails after its answer where no request succeeded.
Status run_bench_serve(const BenchServeOptions& options);
Status run_tune(const TuneOptions& options);
Status run_pull(const PullCommandOptions& options);
Status run_cache(const CacheOptions& options);
Status run_make_checkpoint(const MakeCheckpointOptions& options);

}  // namespace tessera::cli
