// Helpers of generate and score: they convert prompts to ids, and run requests with a record of every forward.
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

// Returns whether to show a progress bar, which needs a terminal as standard error.
bool progress_wanted();

// Returns the token ids of every prompt. `chat`: each text is a user's message, followed by the start of the model's
// turn.
Result<std::vector<std::vector<TokenId>>> prompt_ids(const Engine& engine, const PromptOptions& prompt, bool chat);

// Returns the text of the ids; null without a tokenizer.
Json text_json(const Engine& engine, std::span<const TokenId> ids);

// One forward and its dispatch.
struct ForwardRecord {
  bool decode = false;  // every request's prompt was already computed
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

// Starts an engine. If it could capture no graphs, writes advice to standard error.
Result<std::unique_ptr<Engine>> start_engine(const EngineOptions& options);

// Submits all requests and runs them until they end. `on_event(request, event)` gets events as they come; if it returns
// an error, the run ends.
Result<RunRecord> run_requests(Engine& engine, const std::vector<Request>& requests,
                               const std::function<Status(std::size_t, const RequestEvent&)>& on_event = {});

}  // namespace tessera::cli
