// The engine: loads a model, captures its graphs, takes requests, and returns tokens and texts.
//
//   std::unique_ptr<Engine> engine = TRY(Engine::create({.model_path = "models/demo"}));
//   Request request{.prompt = TRY(engine->tokenizer()->encode("Once upon a time")), .stop = {.max_new_tokens = 60}};
//   std::vector<Completion> done = TRY(engine->run({&request, 1}));
//   std::string text = done[0].text;
//
// Threads: one thread owns an engine; engine_thread.h gives it a thread of its own. submit() returns the errors of a
// single request, such as a bad parameter or a prompt that is too long. An error of step() fails the requests of that
// step and no others.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/timeline.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/engine/images/image_encoder.h"
#include "tessera/engine/model_texts.h"
#include "tessera/engine/report/engine_profile.h"
#include "tessera/engine/report/engine_stats.h"
#include "tessera/engine/report/fallback_watch.h"
#include "tessera/engine/report/graph_inventory.h"
#include "tessera/engine/report/profile_store.h"
#include "tessera/engine/request.h"
#include "tessera/engine/schedule/scheduler.h"
#include "tessera/engine/schedule/step_pace.h"
#include "tessera/model/config/embedding_config.h"

namespace tessera {

class RankGroup;

class Engine {
 public:
  // Reads config and tokenizer, loads or generates the weights, and captures the graphs. Without a tokenizer,
  // tokenizer() is null and requests must give ids.
  static Result<std::unique_ptr<Engine>> create(EngineOptions options);
  // Uses `device`, which is open already, instead of options.device; null: opens that one.
  static Result<std::unique_ptr<Engine>> create(EngineOptions options, std::unique_ptr<Device> device);
  ~Engine();

  const EngineOptions& options() const { return options_; }
  const ModelConfig& config() const { return config_; }
  std::int64_t parameters() const { return parameters_; }  // of the whole model, over all ranks
  // How it makes embeddings; nothing where the model is not an embedding model.
  const std::optional<EmbeddingConfig>& embedding() const { return embedding_; }
  // Returns whether it generates tokens. Embedding models and classifiers do not.
  bool generates() const { return !embedding_ && config_.num_labels == 0; }
  const GenerationConfig& generation_config() const { return texts_.generation; }
  const Tokenizer* tokenizer() const { return texts_.tokenizer ? &*texts_.tokenizer : nullptr; }
  const TokenizerConfig& tokenizer_config() const { return texts_.tokenizer_config; }
  // Tokens that end a text, unless a request ignores them.
  std::span<const TokenId> end_ids() const { return end_ids_; }
  // Largest number of prompt and output tokens of a request: the context, or what the KV cache holds.
  std::int64_t max_request_tokens() const;
  ModelRunner& runner() { return *runner_; }
  const ModelRunner& runner() const { return *runner_; }
  const std::vector<std::string>& notes() const { return notes_; }
  // The phases of the start (EngineOptions::start, tokenizer, device, config, plan, open weights, load weights, memory,
  // compile, capture and, within it, warm up); the server adds its own. The tokenizer is read while the device opens.
  // Except on the CPU, weights load during the phases that follow.
  const Timeline& start() const { return start_; }
  Timeline& start() { return start_; }
  // The time from the arrival of the first request to its first token, on the same clock; nothing before that token.
  const std::optional<Timeline::Phase>& first_token() const { return first_token_; }
  double load_seconds() const { return start_.seconds_of("load weights"); }
  double capture_seconds() const { return start_.seconds_of("capture"); }

  // Checks the request and queues it. Returns kResourceExhausted where max_queued_requests wait already, unless the
  // request is a probe (kProbePriority).
  Result<RequestId> submit(Request request);
  bool idle() const;
  // Schedules and enqueues one forward, and collects the results of the previous one, or of this one. Where the device
  // runs beside the host, the next step is enqueued before the last one's tokens are read. Returns the events of every
  // request that progressed, possibly none. They are valid until the next call, and the caller may move from them.
  // Allocates nothing in a steady decode.
  Result<std::span<RequestEvent>> step();
  // Returns the best time for the next step() while a longer forward runs: requests submitted until then join its
  // forward (step_pace.h). The time is in the past where step() should be called at once.
  std::chrono::steady_clock::time_point step_due() const;
  // Returns a finished request's completion, once.
  std::optional<Completion> take(RequestId id);
  // Does one piece of work for idle moments: captures a pending size, measures the cost of a forward, or finds the
  // fastest library algorithm of a matmul or the fastest schedule of a generated kernel. Returns false where nothing is
  // left. Precondition: idle().
  Result<bool> idle_work();
  // Returns whether the next piece of idle work is the capture of a size, which takes at most a few milliseconds.
  bool captures_when_idle() const { return runner_->captures_when_idle(); }
  // Number of matmuls whose algorithms idle_work() has measured, and of generated kernels whose schedules it has
  // measured.
  std::int64_t measured_algorithms() const { return profiles_->measured_algorithms(); }
  std::int64_t measured_schedules() const { return profiles_->measured_schedules(); }
  // Drops a request. No step reports an event for it.
  void cancel(RequestId id);

  // Submits all requests, steps until idle, and returns their completions in order. Calls `on_event` for every event.
  Result<std::vector<Completion>> run(std::span<const Request> requests,
                                      const std::function<void(std::size_t index, const RequestEvent&)>& on_event = {});

  // Returns ok, or why no further step can succeed: a node of the model is lost. Errors that a step finds are returned
  // by that step.
  Status health() const;
  // Sets a function that is called on another thread when a node is lost; null removes it.
  void when_lost(std::function<void()> call);

  // awaited() returns whether other engines wait for this one to step (EngineOptions::lockstep). when_awaited() sets a
  // function that is called on another thread when they begin to wait; null removes it.
  bool awaited() const;
  void when_awaited(std::function<void()> call);
  // Leaves the lockstep: the other engines stop waiting for this one, and their next steps fail, since it makes no
  // further step. First waits until this rank runs no kernel that reads or writes other ranks' memory.
  void leave_lockstep();
  // Does the same where the engine has failed, without that wait: wakes the other engines at once.
  void fail_lockstep(const Status& why);

  EngineStats stats() const;
  // Writes the same statistics into a snapshot that is kept. Allocates nothing while no new kind of forward has run.
  void read_stats(EngineStats& stats) const;
  // Records where the time of every step goes, until end_profile(). It costs a few microseconds a step, and memory as
  // long as it lasts. Precondition of both: idle(), and not called from within measured work.
  Status start_profile();
  EngineProfile end_profile();
  // For work between steps; null while no profile is recorded.
  StepProfiler* profiler() const { return profiler_.get(); }
  // Removes all prefixes that no running request uses.
  void flush_prefix_cache() { scheduler_->flush_prefixes(); }

 private:
  Engine() = default;
  // `reading` delivers the model's texts.
  Status load(std::future<Result<ReadTexts>> reading);

  Status check(Request& request) const;
  Status check_inputs(const Request& request) const;
  Status check_task(const Request& request) const;
  Status check_images(const Request& request) const;
  void widen_embeddings(Request& request) const;
  Status reserve_embeddings(const Request& request);
  void add_images(Sequence& sequence) const;
  Status encode_images(const ScheduledBatch& batch);
  void note_tower_forwards(std::span<Sequence* const> sequences, std::span<const Patches* const> images);
  Status return_images(const ScheduledBatch& batch);
  bool ends_text(const Request& request, TokenId token) const;
  void end_expired();
  Status submit_next(bool overlap);
  Status accompany();
  std::int64_t shape_compiles() const;
  void keep_facts(const ScheduledBatch& batch);
  void watch_fallbacks(const Decision& decision);
  Status not_submitted(const ScheduledBatch& next, const Status& error);
  Result<StepOutputs> collect();
  Status collect_oldest();
  void end_oldest();
  Result<bool> drop_in_flight(bool fails_oldest);
  void collect_entry(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry, const StepOutputs& outputs);
  void collect_prompt_rows(const ScheduledBatch::Entry& entry, const StepOutputs& outputs, int top);
  void collect_hidden(const ScheduledBatch::Entry& entry);
  void pool(Sequence& sequence, std::int64_t first, std::span<const float> rows) const;
  void collect_token(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry, const StepOutputs& outputs,
                     RequestEvent& event);
  void fail(const ScheduledBatch& scheduled, const Status& error);
  void finish(RequestEvent event);
  void take_out(RequestId id, FinishReason reason);
  std::int64_t draw_seed();

  EngineOptions options_;
  Timeline start_;
  std::unique_ptr<Device> device_;
  ModelConfig config_;
  std::optional<EmbeddingConfig> embedding_;
  std::int64_t parameters_ = 0;
  ModelTexts texts_;
  std::unique_ptr<RankGroup> ranks_;  // null: there is one rank
  std::unique_ptr<ModelRunner> runner_;
  std::shared_ptr<ImageEncoder> encoder_;  // null: the model takes no images
  std::int64_t encoded_images_ = 0;        // images encoded by encoder_
  double tower_seconds_ = 0;               // seconds that encoder_ took
  std::optional<ProfileStore> profiles_;
  std::unique_ptr<Scheduler> scheduler_;
  bool overlap_ = false;
  // The forwards in flight, oldest first, followed by the batch that is being scheduled: [max_in_flight()].
  std::vector<ScheduledBatch> batches_;
  std::vector<float> logits_;         // of the current forward
  std::vector<float> hidden_states_;  // of the current forward's hidden_rows
  std::vector<RequestEvent> events_;
  std::vector<RequestId> expired_;
  std::vector<TokenId> end_ids_;
  std::vector<std::string> notes_;
  std::unordered_map<RequestId, Completion> finished_;
  std::int64_t next_id_ = 0;
  std::uint64_t seed_state_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t output_tokens_ = 0;
  mutable GraphInventoryCache inventory_;
  FallbackWatch watch_;
  StepPace pace_;
  std::unique_ptr<StepProfiler> profiler_;
  std::vector<StepFacts> profiled_;                    // facts of the forwards submitted since the profile began
  std::chrono::steady_clock::time_point next_save_{};  // next time to save measurements; set by the first idle work
  std::int64_t known_shape_compiles_ = 0;              // as of the last forward, or of the idle work after it
  std::optional<Timeline::Phase> first_token_;
};

}  // namespace tessera
