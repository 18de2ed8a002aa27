// The engine: loads a model, captures its graphs, takes requests, and returns tokens and texts.
//
//   std::unique_ptr<Engine> engine = TRY(Engine::create({.model_path = "models/demo"}));
//   Request request{.prompt = TRY(engine->tokenizer()->encode("Once upon a time")), .stop = {.max_new_tokens = 60}};
//   std::vector<Completion> done = TRY(engine->run({&request, 1}));
//   std::string text = done[0].text;
//
// load_model() makes the model ready, Admission turns requests into sequences, and the StepLoop computes them. Programs
// use all three through this class.
//
// Threads: one thread owns an engine (EngineThread runs an engine on a thread of its own). submit() returns the errors
// of a single request, such as a bad parameter or a prompt that is too long. An error of step() fails the requests of
// that step and no others.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/adapters/adapter_pool.h"
#include "tessera/engine/admission/admission.h"
#include "tessera/engine/cache/cache_events.h"
#include "tessera/engine/report/engine_report.h"
#include "tessera/engine/report/idle_work.h"
#include "tessera/engine/request.h"
#include "tessera/engine/run_requests.h"
#include "tessera/engine/schedule/scheduler.h"
#include "tessera/engine/start/loaded_model.h"
#include "tessera/engine/steps/image_feed.h"
#include "tessera/engine/steps/step_loop.h"

namespace tessera {

class Engine {
 public:
  // Loads the model; see load_model(). The first form opens the device that the options name.
  static Result<std::unique_ptr<Engine>> create(EngineOptions options) { return create(std::move(options), nullptr); }
  static Result<std::unique_ptr<Engine>> create(EngineOptions options, std::unique_ptr<Device> device);

  // Parts of the loaded model (loaded_model.h). If tokenizer() returns null, requests must give token ids.
  const EngineOptions& options() const { return model_->options; }
  const ModelConfig& config() const { return model_->config; }
  std::int64_t parameters() const { return model_->parameters; }
  ir::DType kv_cache_type() const { return model_->kv_cache_type; }
  const std::optional<EmbeddingConfig>& embedding() const { return model_->embedding; }
  bool generates() const { return model_->generates(); }
  const GenerationConfig& generation_config() const { return model_->texts.generation; }
  const Tokenizer* tokenizer() const { return model_->tokenizer(); }
  const TokenizerConfig& tokenizer_config() const { return model_->texts.tokenizer_config; }
  std::span<const TokenId> end_ids() const { return model_->end_ids; }
  const std::vector<std::string>& notes() const { return model_->notes; }
  ModelRunner& runner() { return *model_->runner; }
  const ModelRunner& runner() const { return *model_->runner; }
  // Returns the timeline of the start. The server adds its own phases to it.
  const Timeline& start() const { return model_->start; }
  Timeline& start() { return model_->start; }
  double load_seconds() const { return start().seconds_of("load weights"); }
  double capture_seconds() const { return start().seconds_of("capture"); }
  const std::optional<Timeline::Phase>& first_token() const { return steps_.first_token(); }
  // Returns the maximum number of requests that run at once.
  std::int64_t max_running() const { return model_->scheduling.max_running; }
  std::int64_t max_request_tokens() const { return admission_.max_request_tokens(); }

  // Checks the request and queues it; errors are those of Admission::admit().
  Result<RequestId> submit(Request request);
  bool idle() const { return steps_.idle(); }
  // Schedules and enqueues one forward, and then collects results. On an asynchronous device, these are the results of
  // the previous forward, so the device already has its next forward when the host reads them. Returns the events of
  // every request that progressed, possibly none. The events are valid until the next call, and the caller may move
  // from them. Allocates nothing in a steady decode without drafts.
  Result<std::span<RequestEvent>> step() { return steps_.step(); }
  // Returns the time at which to call step() next. If a forward runs, requests that are submitted before this time
  // still join the next forward (step_pace.h). The time is in the past if step() should be called at once.
  std::chrono::steady_clock::time_point step_due() const { return steps_.due(); }
  // Returns a finished request's completion, once.
  std::optional<Completion> take(RequestId id) { return steps_.outcomes().take(id); }
  // Drops a request. No later step reports an event for it.
  void cancel(RequestId id) { steps_.outcomes().end(id, FinishReason::kCancelled); }
  // Submits all requests, steps until idle, and returns their completions in order. Calls `on_event` for every event.
  Result<std::vector<Completion>> run(std::span<const Request> requests, const OnEvent& on_event = {}) {
    return run_requests(*this, requests, on_event);
  }

  // Does one piece of work for idle moments (idle_work.h). Returns false if nothing is left. Precondition: idle().
  Result<bool> idle_work();
  // Returns whether the next piece of idle work is the capture of the graphs for one size, which takes at most a few
  // milliseconds.
  bool captures_when_idle() const { return runner().captures_when_idle(); }
  // Return the number of matmuls whose algorithms idle_work() has measured, and the number of generated kernels whose
  // schedules it has measured.
  std::int64_t measured_algorithms() const { return model_->profiles->measured_algorithms(); }
  std::int64_t measured_schedules() const { return model_->profiles->measured_schedules(); }

  // Returns the ranks or replicas that compute forwards together with this engine. If one of them fails, step() returns
  // its error.
  Peers& peers() { return *model_->peers; }
  // Returns an error if no further step can succeed because a node was lost.
  Status health() const { return model_->peers->health(); }

  EngineStats stats() const;
  // Writes the statistics into the caller's snapshot. Allocates only after a new kind of forward has run.
  void read_stats(EngineStats& stats) const;
  // Records where the time of every step goes, until end_profile() is called. Precondition of both functions: the
  // engine is idle(), and the caller is not inside work that the profiler measures.
  Status start_profile() { return report_.recorder().start(); }
  EngineProfile end_profile() { return report_.recorder().end(); }
  // Returns the profiler of the running recording; null while no profile is recorded. Callers use the profiler to
  // measure what they do between steps.
  StepProfiler* profiler() const { return report_.recorder().profiler(); }
  // Return the adapters that requests may name, and the layout of the linears that adapters may change. The layout is
  // null if no adapters are served. Any thread may pass the layout and device() to Adapter::load(), but only the
  // engine's thread may use the pool.
  AdapterPool& adapters() { return adapters_; }
  const AdapterPool& adapters() const { return adapters_; }
  const AdapterLayout* adapter_layout() const { return runner().adapter_layout(); }
  Device& device() const { return runner().device(); }
  // Removes all prefixes that no running request uses.
  void flush_prefix_cache() { scheduler_.flush_prefixes(); }
  // Ends the retention of a session's text (RetentionHint). Returns whether a text was retained.
  bool release_session(const std::string& session) { return scheduler_.release_session(session); }
  // Empties the prefix cache, and from now on reports its changes to `sink`, beginning with BlocksCleared. An empty
  // `sink` ends these reports. Precondition: idle().
  void observe_cache(CacheEventSink sink);
  // Reports the changes of the prefix cache since the last report. Does nothing without a sink or without changes.
  void report_cache_events() {
    if (!cache_log_.empty()) cache_sink_(cache_log_.take());
  }

 private:
  explicit Engine(std::unique_ptr<LoadedModel> model);
  Status load_adapters();

  std::unique_ptr<LoadedModel> model_;
  CacheEventLog cache_log_;
  CacheEventSink cache_sink_;
  Scheduler scheduler_;
  AdapterPool adapters_;
  EngineReport report_;
  ImageFeed images_;
  Admission admission_;
  StepLoop steps_;
  IdleWork idle_work_;
};

}  // namespace tessera
