// A model that is ready to compute: its tokenizer and generation settings, its runner with weights and graphs, and its
// peer ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/base/timeline.h"
#include "tessera/device/device.h"
#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/engine/plan/model_texts.h"
#include "tessera/engine/plan/profile_store.h"
#include "tessera/engine/ranks/peers.h"
#include "tessera/engine/schedule/scheduler.h"
#include "tessera/model/config/config.h"
#include "tessera/model/config/embedding_config.h"
#include "tessera/runner/model_runner.h"

namespace tessera {

struct LoadedModel {
  LoadedModel() = default;
  ~LoadedModel();  // stores the measurements for later starts
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  EngineOptions options;
  Timeline start;
  std::unique_ptr<Device> device;
  ModelConfig config;
  std::optional<EmbeddingConfig> embedding;  // none: the model is not an embedding model
  std::int64_t parameters = 0;               // parameters of the whole model, over all ranks
  ir::DType kv_cache_type = ir::DType::kFloat32;
  ModelTexts texts;
  std::vector<TokenId> end_ids;  // tokens that end a text, unless a request ignores them
  std::vector<std::string> notes;
  StepOrder steps;
  SchedulerOptions scheduling;
  CacheOptions cache;
  std::unique_ptr<Peers> peers;
  std::unique_ptr<ModelRunner> runner;
  std::optional<ProfileStore> profiles;

  // Returns whether the model generates tokens. Embedding models and classifiers do not.
  bool generates() const { return !embedding && config.num_labels == 0; }
  const Tokenizer* tokenizer() const { return texts.tokenizer ? &*texts.tokenizer : nullptr; }
};

// Reads config and tokenizer, loads or generates the weights, and captures the graphs. If `device` is null, opens the
// device that the options name. Appends the time that each phase took to EngineOptions::start. The phases are
// tokenizer, device, config, plan, open weights, load weights, memory, compile, capture (which includes warm-up) and,
// if the device has libraries to start, libraries. The tokenizer is read while the device opens. Except on the CPU, the
// weights are loaded in parallel with the phases memory, compile and capture. The device's libraries start in parallel
// with all phases after `device`.
Result<std::unique_ptr<LoadedModel>> load_model(EngineOptions options, std::unique_ptr<Device> device);

}  // namespace tessera
