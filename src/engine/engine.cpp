#include "tessera/engine/engine.h"

#include <fmt/format.h>

#include <deque>
#include <future>
#include <utility>

namespace tessera {

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options, std::unique_ptr<Device> device) {
  std::unique_ptr<LoadedModel> model = TRY(load_model(std::move(options), std::move(device)));
  std::unique_ptr<Engine> engine(new Engine(std::move(model)));
  TRY(engine->load_adapters());
  return engine;
}

// Loads the adapters that the options name, in order. Meanwhile reads the next few folders, so that some adapters are
// converted while others wait for pinned memory.
Status Engine::load_adapters() {
  using Content = Result<std::shared_ptr<const Adapter>>;
  constexpr std::size_t kReadAtOnce = 4;
  const std::vector<AdapterPath>& paths = model_->options.adapters.paths;
  std::deque<std::future<Content>> reads;  // the folders from the current path on that are read or being read
  std::size_t begun = 0;
  for (const AdapterPath& given : paths) {
    const std::string context = fmt::format("lora_paths: {}={}", given.name, given.path);
    const AdapterLoad load{.name = given.name};
    TRY(adapters_.check(load).with_context(context));
    for (; begun < paths.size() && reads.size() < kReadAtOnce; ++begun)
      reads.push_back(std::async(std::launch::async, [this, &path = paths[begun].path] {
        return Adapter::load(path, *adapter_layout(), device());
      }));
    Content content = reads.front().get();
    reads.pop_front();
    TRY(adapters_.load(load, TRY(std::move(content).with_context(context))));
  }
  return ok_status();
}

Engine::Engine(std::unique_ptr<LoadedModel> model)
    : model_(std::move(model)),
      scheduler_(
          model_->scheduling, model_->cache,
          [this](std::int64_t tokens) { return split_tokens(tokens, runner().dispatch_table()); },
          [this] { return filling_tokens(runner().dispatch_table()); },
          {.forward_ms = [this](
                             std::int64_t rows,
                             std::int64_t requests) { return drafting_ms(rows, requests, runner().dispatch_table()); },
           .prompts_ms = [this](std::int64_t rows) { return prompts_ms(rows, runner().dispatch_table()); },
           .draft_ms = [this] { return steps_.draft_ms(); },
           .slowdown = [this](std::int64_t requests) { return steps_.draft_slowdown(requests); }}),
      adapters_(scheduler_.adapters()),
      report_(*model_, scheduler_),
      images_(*model_, report_.watch()),
      admission_(*model_, images_.encoder(), scheduler_, adapters_),
      steps_(*model_, scheduler_, images_, report_, admission_.trials()),
      idle_work_(*model_, report_) {}

Result<RequestId> Engine::submit(Request request) {
  std::unique_ptr<Sequence> sequence = TRY(admission_.admit(std::move(request)));
  const RequestId id = sequence->id;
  steps_.add(std::move(sequence));
  return id;
}

void Engine::observe_cache(CacheEventSink sink) {
  scheduler_.observe_cache(nullptr);
  cache_log_.take();
  cache_sink_ = std::move(sink);
  if (!cache_sink_) return;
  scheduler_.flush_prefixes();
  scheduler_.observe_cache(&cache_log_);
  cache_log_.cleared();
  report_cache_events();
}

Result<bool> Engine::idle_work() {
  if (!idle()) return internal_error("idle work is asked for while requests run");
  return idle_work_.work();
}

EngineStats Engine::stats() const {
  EngineStats stats;
  read_stats(stats);
  return stats;
}

void Engine::read_stats(EngineStats& stats) const {
  report_.read(stats);
  images_.report(stats.images);
  stats.output_tokens = steps_.output_tokens();
  stats.drafts = steps_.drafts();
  stats.prefill = steps_.prefill();
}

}  // namespace tessera
