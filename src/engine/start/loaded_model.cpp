#include <fmt/format.h>

#include <chrono>
#include <future>
#include <optional>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/engine/plan/graph_export.h"
#include "tessera/engine/plan/memory_shares.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/engine/plan/weight_load.h"
#include "tessera/engine/start/loaded_model.h"
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

// Starts the device's libraries on another thread. Returns an invalid future if the device has none to start.
std::future<LoadTimes> start_libraries(const Registry& registry, Device& device) {
  const Result<const Backend*> backend = registry.devices.backend(device.properties().type);
  if (!backend.ok() || (*backend)->start_libraries == nullptr) return {};
  return std::async(std::launch::async, [start = (*backend)->start_libraries, &device] {
    LoadTimes times{.begin = Clock::now()};
    start(device);
    times.end = Clock::now();
    return times;
  });
}

// If a start failed for lack of memory, adds to its error which options reduce the memory needed. An error that already
// names mem_fraction_static stays as it is.
Status with_what_helps(Status status) {
  if (status.code() != StatusCode::kResourceExhausted ||
      status.message().find("mem_fraction_static") != std::string::npos)
    return status;
  return resource_exhausted(
      fmt::format("{}; less memory is needed with a lower mem_fraction_static (0.8, 0.7), max_total_tokens, "
                  "chunked_prefill_size (2048, 1024) or max_running_requests (64, 16)",
                  status.message()));
}

void log_plan(const EnginePlan& plan) {
  for (const std::string& fact : plan.facts) log_info("engine", "{}", fact);
  for (const std::string& note : plan.notes) log_warn("engine", "{}", note);
  log_info("memory", "{}", shares_line(plan.memory));
  if (plan.embedding) {
    log_info("engine", "an embedding model: pooling {}, {}; no decode graphs", pooling_name(plan.embedding->pooling),
             plan.embedding->normalise ? "normalised" : "not normalised");
  } else if (!plan.generates()) {
    log_info("engine", "a classifier: labels {}; no decode graphs", plan.config.num_labels);
  }
}

// The steps of a start, in order.
class ModelStart {
 public:
  explicit ModelStart(LoadedModel& model) : model_(model), reading_(start_reading_texts(model.options)) {}

  Status open_device();
  Status plan();          // also starts the peers, which may lower sizes and pages of the plan
  Status take_texts();    // takes the texts that another thread has read
  Status load_weights();  // loads on another thread, except on the CPU
  Status make_runner();
  Status capture();
  Status wait();  // waits for the weights, the peers and the device's libraries

 private:
  LoadedModel& model_;
  std::future<Result<ReadTexts>> reading_;
  std::future<LoadTimes> libraries_;
  EnginePlan plan_;
  std::optional<Weights> weights_;
  std::optional<WeightLoad> load_;
};

Status ModelStart::open_device() {
  if (model_.device == nullptr) {
    const Timeline::Scope scope = model_.start.scope("device");
    model_.device = TRY(tessera::open_device(model_.options));
  }
  libraries_ = start_libraries(*model_.options.registry, *model_.device);
  return ok_status();
}

Status ModelStart::plan() {
  const Clock::time_point began = Clock::now();
  plan_ = TRY(plan_engine_with_profile(model_.options, *model_.device));
  model_.profiles.emplace(model_.options, plan_, model_.device->properties());
  model_.profiles->restore_algorithms();
  const Clock::time_point planning =
      began + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(plan_.config_s));
  model_.start.record("config", began, planning);
  model_.start.record("plan", planning, Clock::now());
  model_.peers = TRY(start_peers(model_.options, *model_.device, plan_));
  model_.options.drafts = plan_.drafts;
  model_.config = plan_.config;
  model_.embedding = plan_.embedding;
  model_.parameters = plan_.parameters;
  model_.kv_cache_type = plan_.model.kv_cache_type();
  model_.notes = plan_.facts;
  model_.notes.insert(model_.notes.end(), plan_.notes.begin(), plan_.notes.end());
  model_.steps = plan_.steps;
  model_.scheduling = {.limits = plan_.runner,
                       .max_running = plan_.max_running,
                       .vocab_size = plan_.config.vocab_size,
                       .prefix_cache = !model_.options.disable_radix_cache,
                       .turns = plan_.steps.turns,
                       .adapter_slots = plan_.graphs.adapted ? plan_.graphs.adapted->layout.limits().slots : 0};
  model_.cache = {.groups = plan_.memory.cache_groups, .page_size = plan_.runner.page_size};
  log_plan(plan_);
  if (model_.options.graphs.debug) export_for_debugging(plan_, model_.options);
  return ok_status();
}

Status ModelStart::take_texts() {
  ReadTexts read = TRY(reading_.get());
  model_.start.record("tokenizer", read.times.begin, read.times.end);
  model_.texts = std::move(read.texts);
  const std::vector<TokenId>& ends = model_.texts.generation.eos_token_ids;
  model_.end_ids = ends.empty() ? model_.config.eos_token_ids : ends;
  const std::string& path = model_.options.model_path;
  TRY(check_end_ids(path, model_.end_ids, model_.config.vocab_size));
  if (!model_.texts.tokenizer) model_.notes.push_back(without_tokenizer(path));
  return ok_status();
}

Status ModelStart::load_weights() {
  const Clock::time_point opening = Clock::now();
  weights_ = TRY(Weights::allocate(plan_.graphs.weights, *model_.device));
  WeightSource source = TRY(weight_source(model_.options, plan_));
  model_.start.record("open weights", opening, Clock::now());
  load_.emplace(plan_.graphs.weights, *weights_, std::move(source), *model_.device, model_.options.show_progress);
  TRY(model_.peers->load_weights(plan_, [&] { return load_->start(); }));
  return model_.peers->meet();  // on a CPU the weights are loaded by now
}

Status ModelStart::make_runner() {
  // Shows only one progress bar, that of loading, because loading and capturing overlap here and loading takes longer
  // than capturing.
  if (!model_.device->properties().on_host) plan_.runner.show_progress = false;
  plan_.runner.start = &model_.start;
  model_.runner =
      TRY(ModelRunner::create(std::move(plan_.graphs), *std::move(weights_), *model_.device, std::move(plan_.runner)));
  model_.runner->set_costs(model_.profiles->load_costs());
  model_.scheduling.takes_checkpoints = model_.runner->takes_checkpoints();
  return ok_status();
}

// Captures the graphs. While the weights load, also captures sizes that would otherwise be captured after the start.
// This delays no request, because none can be served before the weights are loaded.
Status ModelStart::capture() {
  TRY(model_.runner->capture([&] { return !load_->done(); }).with_context(kCaptureContext));
  return model_.peers->compare_sizes(model_.runner->dispatch_table());
}

Status ModelStart::wait() {
  const LoadTimes loaded = TRY(load_->wait());
  model_.start.record("load weights", loaded.begin, loaded.end);
  TRY(model_.peers->meet());
  if (libraries_.valid()) {
    const LoadTimes started = libraries_.get();
    model_.start.record("libraries", started.begin, started.end);
  }
  return ok_status();
}

constexpr Status (ModelStart::*kStartSteps[])() = {&ModelStart::plan,         &ModelStart::take_texts,
                                                   &ModelStart::load_weights, &ModelStart::make_runner,
                                                   &ModelStart::capture,      &ModelStart::wait};

}  // namespace

LoadedModel::~LoadedModel() {
  if (runner != nullptr) profiles->save(runner->costs());
}

Result<std::unique_ptr<LoadedModel>> load_model(EngineOptions options, std::unique_ptr<Device> device) {
  TRY(check_has_engine(options));
  auto model = std::make_unique<LoadedModel>();
  model->start = options.start.value_or(Timeline());
  model->options = std::move(options);
  model->device = std::move(device);
  ModelStart start(*model);
  TRY(start.open_device());
  for (const auto step : kStartSteps) TRY(with_what_helps((start.*step)()));
  // Saves the choices of the start now, because an engine that stays busy has no idle moment in which it could save
  // them.
  model->profiles->save(model->runner->costs());
  return model;
}

}  // namespace tessera
