// Helpers of `generate` and `score`. They convert prompts to ids, run requests, and record every forward.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/engine/engine.h"

namespace tessera::cli {

// Returns whether standard error is a terminal, on which a progress bar can be shown.
bool progress_wanted();

// Returns the token ids of every prompt. If `chat`, each text is a user's message in the chat template, followed by the
// start of the model's turn.
Result<std::vector<std::vector<TokenId>>> prompt_ids(const Engine& engine, const PromptOptions& prompt, bool chat);

// Returns the text of the ids. Returns null if the engine has no tokenizer.
Json text_json(const Engine& engine, std::span<const TokenId> ids);

// One forward and how it was dispatched.
struct ForwardRecord {
  bool decode = false;  // true if all prompts were already computed
  RunnerKind runner = RunnerKind::kEager;
  std::int64_t size = 0;
  Reason reason = Reason::kGraphsDisabled;
  std::int64_t tokens = 0;
  std::int64_t padding = 0;
  double ms = 0;  // time from the end of the previous forward to the end of this one
};

struct RunRecord {
  std::vector<Completion> completions;  // in the order of the requests
  std::vector<ForwardRecord> forwards;
  double total_ms = 0;
};

// Starts an engine. If some runner could capture no graphs, writes advice to standard error.
Result<std::unique_ptr<Engine>> start_engine(const EngineOptions& options);

// Submits all requests and runs them until they end. Calls `on_event(request index, event)` for each event. If on_event
// returns an error, the run ends.
Result<RunRecord> run_requests(Engine& engine, const std::vector<Request>& requests,
                               const std::function<Status(std::size_t, const RequestEvent&)>& on_event = {});

}  // namespace tessera::cli
