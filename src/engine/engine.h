// The engine: a model loaded and captured, requests in, tokens and texts out.
//
//   std::unique_ptr<Engine> engine = TRY(Engine::create({.model_path = "models/demo"}));
//   Request request{.prompt = TRY(engine->tokenizer()->encode("Once upon a time")), .stop = {.max_new_tokens = 60}};
//   std::vector<Completion> done = TRY(engine->run({&request, 1}));
//   std::string text = done[0].text;
//
// Threads: one thread owns an engine; engine_thread.h gives it one of its own. Errors of one request (a bad parameter,
// a prompt that is too long) are submit()'s; an error of step() fails the requests of that step and leaves the others.
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
  // Reads config and tokenizer (none is fine: then tokenizer() is null and ids are needed), loads or
  // makes the weights, captures the graphs.
  static Result<std::unique_ptr<Engine>> create(EngineOptions options);
  // On a device that was opened already, instead of options.device; null: opens it.
  static Result<std::unique_ptr<Engine>> create(EngineOptions options, std::unique_ptr<Device> device);
  ~Engine();

  const EngineOptions& options() const { return options_; }
  const ModelConfig& config() const { return config_; }
  std::int64_t parameters() const { return parameters_; }  // of the model, on all ranks together
  // How it makes embeddings; none where the model is no embedding model.
  const std::optional<EmbeddingConfig>& embedding() const { return embedding_; }
  // Whether it makes tokens. An embedding model and a classifier do not.
  bool generates() const { return !embedding_ && config_.num_labels == 0; }
  const GenerationConfig& generation_config() const { return texts_.generation; }
  const Tokenizer* tokenizer() const { return texts_.tokenizer ? &*texts_.tokenizer : nullptr; }
  const TokenizerConfig& tokenizer_config() const { return texts_.tokenizer_config; }
  // Tokens that end a text, unless a request ignores them.
  std::span<const TokenId> end_ids() const { return end_ids_; }
  // Tokens of prompt and output together that a request may come to: the context, or what the KV cache holds.
  std::int64_t max_request_tokens() const;
  ModelRunner& runner() { return *runner_; }
  const ModelRunner& runner() const { return *runner_; }
  const std::vector<std::string>& notes() const { return notes_; }
  // The phases of the start (EngineOptions::start, tokenizer, device, config, plan, open weights, load weights, memory,
  // compile, capture and in it warm up); who serves the engine adds its own. The tokenizer is read beside the device's
  // opening. Weights are loaded beside the phases that follow where the device is not the CPU.
  const Timeline& start() const { return start_; }
  Timeline& start() { return start_; }
  // On the same clock: the first token since the start, from its request's arrival on. None before.
  const std::optional<Timeline::Phase>& first_token() const { return first_token_; }
  double load_seconds() const { return start_.seconds_of("load weights"); }
  double capture_seconds() const { return start_.seconds_of("capture"); }

  // Checks the request and queues it. kResourceExhausted where max_queued_requests wait already and it is
  // no probe (kProbePriority).
  Result<RequestId> submit(Request request);
  bool idle() const;
  // Schedules and enqueues one forward, and collects the results of the previous one, or of this one: where the device
  // runs beside the host, the next step is enqueued before the last one's tokens are read. Events of every request
  // that moved, valid until the next call, the caller's to move from; there may be none. Allocates nothing in a steady
  // decode.
  Result<std::span<RequestEvent>> step();
  // step() is best called then, while a forward runs that takes longer: what is submitted until then is in its forward
  // (step_pace.h). In the past where it should be called at once.
  std::chrono::steady_clock::time_point step_due() const;
  // A finished request's completion; returned once.
  std::optional<Completion> take(RequestId id);
  // One piece of work for idle moments: captures a pending size, measures what a forward costs, which of a library's
  // algorithms for a matmul is the fastest, or which schedule of a generated kernel. False where none is left.
  // Precondition: idle().
  Result<bool> idle_work();
  // Whether the next piece is the capture of a size, which takes some milliseconds at most.
  bool captures_when_idle() const { return runner_->captures_when_idle(); }
  // Matmuls whose algorithms idle_work() has measured, and generated kernels whose schedules it has.
  std::int64_t measured_algorithms() const { return profiles_->measured_algorithms(); }
  std::int64_t measured_schedules() const { return profiles_->measured_schedules(); }
  // Drops a request; its end is an event of kind kCancelled in no step.
  void cancel(RequestId id);

  // Submits all, steps until idle, and returns their completions in order. `on_event` is called for every event.
  Result<std::vector<Completion>> run(std::span<const Request> requests,
                                      const std::function<void(std::size_t index, const RequestEvent&)>& on_event = {});

  // Ok, or why no step can succeed any more: a node of the model is gone. What a step finds out itself it returns.
  Status health() const;
  // Called when a node is gone, on another thread; null takes it back.
  void when_lost(std::function<void()> call);

  // Whether other engines wait for this one to step (EngineOptions::lockstep). `call` is made on another thread when
  // they begin to; null takes it back.
  bool awaited() const;
  void when_awaited(std::function<void()> call);
  // They wait for it no more, and their next steps fail: it makes no further one. Waits until no kernel of this rank
  // runs that others' memory is read or written by.
  void leave_lockstep();
  // The same where the engine has failed: calls them at once.
  void fail_lockstep(const Status& why);

  EngineStats stats() const;
  // The same into a snapshot that is kept: allocates nothing while no new kind of forward has run.
  void read_stats(EngineStats& stats) const;
  // Keeps where the time of every step goes, until it is asked for. Costs a step some microseconds, and memory for as
  // long as it goes on. Precondition of both: idle(), and
  // not from within what is measured.
  Status start_profile();
  EngineProfile end_profile();
  // For what happens between steps; null while none is kept.
  StepProfiler* profiler() const { return profiler_.get(); }
  // Removes all prefixes that no running request uses.
  void flush_prefix_cache() { scheduler_->flush_prefixes(); }

 private:
  Engine() = default;
  // `reading` reads the options' texts.
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
  std::unique_ptr<RankGroup> ranks_;  // null: one rank
  std::unique_ptr<ModelRunner> runner_;
  std::shared_ptr<ImageEncoder> encoder_;  // null: the model takes no images
  std::int64_t encoded_images_ = 0;        // by it
  double tower_seconds_ = 0;               // that it took
  std::optional<ProfileStore> profiles_;
  std::unique_ptr<Scheduler> scheduler_;
  bool overlap_ = false;
  // Forwards in flight, oldest first, and after them the batch that is being scheduled: [max_in_flight()].
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
  std::vector<StepFacts> profiled_;                    // of the forwards that were submitted since the profile began
  std::chrono::steady_clock::time_point next_save_{};  // of measurements; at the first idle work
  std::int64_t known_shape_compiles_ = 0;              // as of the last forward, or the idle work after it
  std::optional<Timeline::Phase> first_token_;
};

}  // namespace tessera
