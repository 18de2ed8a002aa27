// A classifier for tests of routes that score texts.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tessera/server/server_test_util.h"

namespace tessera::testing {

// Makes an engine for a model that has the dimensions of the demo model and random weights. `labels` is the config's
// "id2label". The config has a "problem_type" unless `problem_type` is empty. Writes the config to `folder`; the caller
// removes the folder.
inline Result<std::unique_ptr<Engine>> make_classifier(const std::string& folder, const std::string& labels,
                                                       const std::string& problem_type = "") {
  std::filesystem::create_directories(folder);
  Json config = *Json::read_file(source_path("models/demo/config.json"));
  config.set("architectures", Json(Json::Array{Json("Qwen3ForSequenceClassification")}));
  config.set("id2label", *Json::parse(labels, "id2label"));
  if (!problem_type.empty()) config.set("problem_type", Json(problem_type));
  std::ofstream(folder + "/config.json") << config.dump();
  EngineOptions options{.model_path = folder, .tokenizer_path = source_path("models/demo/tokenizer.json")};
  options.device = test_device_name();
  options.dtype = "float32";
  options.load_format = LoadFormat::kDummy;
  options.context_length = 512;
  options.max_running_requests = 8;
  options.random_seed = 1;
  options.graphs.piecewise_tokens = {16, 64};
  return Engine::create(options);
}

}  // namespace tessera::testing
