#include <fmt/format.h>

#include <chrono>
#include <future>
#include <random>

#include "tessera/base/log.h"
#include "tessera/engine/cache/memory_shares.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/images/tower_encoder.h"
#include "tessera/engine/ranks/engine_rank.h"
#include "tessera/engine/ranks/lockstep.h"
#include "tessera/engine/report/graph_export.h"
#include "tessera/engine/weight_load.h"
#include "tessera/runner/capture/graph_failure.h"

namespace tessera {
namespace {

using Clock = Timeline::Clock;

// Exports all graphs in debug mode. A failure does not stop the start.
void export_for_debugging(const EnginePlan& plan, const EngineOptions& options) {
  const auto write = [&]() -> Status {
    if (options.cache_dir.empty()) return failed_precondition("no cache folder is known");
    const std::vector<NamedGraph> graphs = TRY(graphs_of(plan, options.graphs.disabled_passes));
    const std::string folder = debug_export_folder(options, graphs);
    TRY(export_graphs(graphs, folder));
    log_info("debug", "{} graphs are in {}", graphs.size(), folder);
    return ok_status();
  };
  if (const Status written = write(); !written.ok())
    log_warn("debug", "the graphs are not exported: {}", written.message());
}

// Starts the device's libraries on another thread. Returns an invalid future where they have nothing to do.
std::future<void> start_libraries(const Registry& registry, Device& device) {
  const Result<const Backend*> backend = registry.devices.backend(device.properties().type);
  if (!backend.ok() || (*backend)->start_libraries == nullptr) return {};
  return std::async(std::launch::async, [start = (*backend)->start_libraries, &device] { start(device); });
}

// Adds options that help to the error of a start without enough memory.
Status with_what_helps(Status status) {
  if (status.code() != StatusCode::kResourceExhausted ||
      status.message().find("mem_fraction_static") != std::string::npos)
    return status;
  return resource_exhausted(
      fmt::format("{}; less memory is needed with a lower mem_fraction_static (0.8, 0.7), max_total_tokens, "
                  "chunked_prefill_size (2048, 1024) or max_running_requests (64, 16)",
                  status.message()));
}

}  // namespace

Engine::~Engine() {
  if (runner_ != nullptr) profiles_->save(runner_->costs());
}

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options) { return create(std::move(options), nullptr); }

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options, std::unique_ptr<Device> device) {
  if (options.node_rank > 0 && !options.dp_attention)
    return invalid_argument(
        fmt::format("node_rank: node {} follows node 0 and has no engine of its own", options.node_rank));
  std::unique_ptr<Engine> engine(new Engine());
  engine->start_ = options.start.value_or(Timeline());
  engine->options_ = std::move(options);
  std::future<Result<ReadTexts>> reading = start_reading_texts(engine->options_);
  if (device == nullptr) {
    const Timeline::Scope scope = engine->start_.scope("device");
    device = TRY(open_device(engine->options_));
  }
  engine->device_ = std::move(device);
  TRY(with_what_helps(engine->load(std::move(reading))));
  return engine;
}

Status Engine::load(std::future<Result<ReadTexts>> reading) {
  std::future<void> libraries = start_libraries(*options_.registry, *device_);
  const Clock::time_point began = Clock::now();
  EnginePlan plan = TRY(plan_engine_with_profile(options_, *device_));
  profiles_.emplace(options_, plan, device_->properties());
  profiles_->restore_algorithms();
  const Clock::time_point planning =
      began + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(plan.config_s));
  start_.record("config", began, planning);
  start_.record("plan", planning, Clock::now());
  ranks_ = TRY(start_ranks(options_, *device_, plan));
  if (options_.dp_attention) {
    if (options_.lockstep == nullptr) return internal_error("ranks with requests of their own have no group");
    TRY(options_.lockstep->agree(options_.replica, plan.runner.prefill_sizes, plan.runner.decode_sizes));
    plan.runner.communicator = &options_.lockstep->communicator(options_.replica);
  }
  config_ = plan.config;
  embedding_ = plan.embedding;
  parameters_ = plan.parameters;
  notes_ = plan.notes;
  for (const std::string& note : notes_) log_warn("engine", "{}", note);
  log_info("memory", "{}", shares_line(plan.memory));
  if (embedding_) {
    log_info("engine", "an embedding model: pooling {}, {}; no decode graphs", pooling_name(embedding_->pooling),
             embedding_->normalise ? "normalised" : "not normalised");
  } else if (!generates()) {
    log_info("engine", "a classifier: labels {}; no decode graphs", config_.num_labels);
  }
  if (options_.graphs.debug) export_for_debugging(plan, options_);
  ReadTexts read = TRY(reading.get());
  start_.record("tokenizer", read.times.begin, read.times.end);
  texts_ = std::move(read.texts);
  const std::vector<TokenId>& ends = texts_.generation.eos_token_ids;
  end_ids_ = ends.empty() ? config_.eos_token_ids : ends;
  if (texts_.tokenizer) {
    TRY(check_end_ids(options_.model_path, end_ids_, config_.vocab_size));
  } else {
    notes_.push_back(without_tokenizer(options_.model_path));
  }

  seed_state_ = options_.random_seed != 0 ? options_.random_seed : std::random_device{}();
  // Shows one progress bar at a time: where loading and capturing overlap, loading takes longer.
  if (!device_->properties().on_host) plan.runner.show_progress = false;
  // Ranks with requests of their own wait here until all have loaded, because loading times differ.
  const auto meet = [&] {
    return options_.lockstep == nullptr ? ok_status()
                                        : options_.lockstep->meet(options_.replica, RankGroup::kLoadLimit);
  };
  const Clock::time_point opening = Clock::now();
  Weights weights = TRY(Weights::allocate(plan.graphs.weights, *device_));
  WeightSource source = TRY(weight_source(options_, plan.graphs));
  start_.record("open weights", opening, Clock::now());
  WeightLoad load(plan.graphs.weights, weights, std::move(source), *device_, options_.show_progress);
  TRY(ranks_ == nullptr ? load.start() : ranks_->load(limits_of(plan), [&] { return load.start(); }));
  TRY(meet());  // on a CPU the weights are loaded by now
  const SchedulerOptions scheduling{.chunk = plan.runner.max_tokens,
                                    .max_running = plan.runner.max_requests,
                                    .vocab_size = config_.vocab_size,
                                    .prefix_cache = !options_.disable_radix_cache,
                                    .turns = options_.pp_size > 1 ? plan.runner.max_in_flight : 1};
  // On a CPU a forward has finished when enqueueing returns. Overlap would gain nothing, and ends of requests would be
  // noticed a step late. Stages of a pipeline run beside one another on any device.
  overlap_ = options_.overlap_schedule.value_or(!device_->properties().on_host || options_.pp_size > 1);
  scheduler_ = std::make_unique<Scheduler>(
      scheduling, CacheOptions{.groups = plan.memory.cache_groups, .page_size = plan.runner.page_size},
      [this](std::int64_t tokens) { return split_tokens(tokens, runner_->dispatch_table()); },
      [this] { return filling_tokens(runner_->dispatch_table()); });
  plan.runner.start = &start_;
  runner_ = TRY(ModelRunner::create(std::move(plan.graphs), std::move(weights), *device_, std::move(plan.runner)));
  batches_.resize(static_cast<std::size_t>(runner_->max_in_flight()));
  encoder_ = options_.image_encoder;
  if (encoder_ == nullptr && runner_->vision() != nullptr)
    encoder_ = std::make_shared<TowerEncoder>(*runner_->vision());
  scheduler_->grow_embeddings(runner_->embedding_rows());
  runner_->set_costs(profiles_->load_costs());
  // Nothing can be served before the weights are loaded, so deferred sizes are captured meanwhile.
  TRY(runner_->capture([&] { return !load.done(); }).with_context(kCaptureContext));
  if (options_.lockstep != nullptr) {
    const DispatchTable& captured = runner_->dispatch_table();
    TRY(options_.lockstep->agree(options_.replica, captured.prefill_sizes, captured.decode_sizes));
  }
  const LoadTimes loaded = TRY(load.wait());
  start_.record("load weights", loaded.begin, loaded.end);
  TRY(meet());
  if (libraries.valid()) libraries.wait();
  return ok_status();
}

}  // namespace tessera
