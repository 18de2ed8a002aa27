// Makes a small config for tests.
#pragma once

#include <gtest/gtest.h>

#include "tessera/model/config/config.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera::test {

// Returns a config that has only the fields without a default. The members of the JSON object `changes` replace these
// fields or are added to them.
inline Json small_config(const char* architecture, const char* changes = "{}") {
  Json json = *Json::parse(R"({"vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4,
                               "num_attention_heads": 4, "max_position_embeddings": 2048})",
                           "base");
  json.set("architectures", Json(Json::Array{Json(architecture)}));
  const Result<Json> extra = Json::parse(changes, "changes");
  EXPECT_TRUE(extra.ok()) << changes;
  for (const auto& [key, value] : extra->as_object()) json.set(key, value);
  return json;
}
inline Result<ModelConfig> small(const char* architecture, const char* changes = "{}") {
  return ModelConfig::from_json(small_config(architecture, changes), "m/config.json", built_in_families());
}

// Returns the number of parameters of the model's text part. If the model cannot be built, returns 0 and fails the
// test.
inline std::int64_t parameters_of(const ModelConfig& config) {
  const Result<ModelGraphs> graphs = build_model(config, {}, built_in_ops(), built_in_families());
  EXPECT_TRUE(graphs.ok()) << graphs.status().message();
  return graphs.ok() ? parameter_count(graphs->weights) : 0;
}

}  // namespace tessera::test
