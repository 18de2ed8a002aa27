// Reads a golden checkpoint: prompts, and what Hugging Face computes from them in float32.
//
// golden.json holds the prompts and the 12 greedy tokens after each. golden.safetensors holds the logits of every token
// of prompt i (logits_i), or of its last tokens (logits_i_tail).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/strong_id.h"
#include "tessera/device/testing/environment.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera::testing {

inline std::vector<TokenId> ids_of(const Json& list) {
  std::vector<TokenId> ids;
  for (const Json& id : list.as_array()) ids.emplace_back(static_cast<std::int32_t>(id.as_int()));
  return ids;
}

// Returns the stored rows of prompt i, the last rows of its logits: [rows, vocab]. `prefix` is "logits_", or
// "logits_act_" for logits that were computed with rounded inputs of quantised linears.
inline std::vector<float> stored_logits(const SafetensorsFile& file, std::size_t i,
                                        const std::string& prefix = "logits_") {
  const StoredTensor* tensor = file.find(prefix + std::to_string(i));
  if (tensor == nullptr) tensor = file.find(prefix + std::to_string(i) + "_tail");
  std::vector<float> rows(tensor->data.size() / sizeof(float));
  std::memcpy(rows.data(), tensor->data.data(), tensor->data.size());
  return rows;
}

struct Golden {
  std::string folder;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<TokenId>> greedy;  // the greedy tokens after each prompt
  SafetensorsFile logits;

  std::vector<float> stored_rows(std::size_t i) const { return stored_logits(logits, i); }
  // Returns the rows that were computed with rounded inputs. Precondition: the golden has them.
  std::vector<float> rounded_input_rows(std::size_t i) const { return stored_logits(logits, i, "logits_act_"); }
};

inline Golden read_golden_folder(const std::string& folder) {
  const Json json = *Json::read_file(folder + "/golden.json");
  Golden golden{
      .folder = folder, .prompts = {}, .greedy = {}, .logits = *SafetensorsFile::open(folder + "/golden.safetensors")};
  for (const Json& prompt : json.find("prompts")->as_array()) golden.prompts.push_back(ids_of(prompt));
  for (const Json& greedy : json.find("greedy")->as_array()) golden.greedy.push_back(ids_of(greedy));
  return golden;
}

// Returns the folder of a case. A case "shared/…" is beside the repository. The cases "quantised/…" and "gguf/…" are
// folders of the repository's test data, and all other cases are folders of its goldens/.
inline std::string golden_path(const std::string& name) {
  constexpr std::string_view kShared = "shared/";
  if (name.starts_with(kShared)) return shared_path("goldens/" + name.substr(kShared.size()));
  const bool has_folder = name.starts_with("quantised/") || name.starts_with("gguf/");
  return data_path(has_folder ? name : "goldens/" + name);
}
// Returns why a case cannot be tested here, or "". A missing folder of the repository is not a reason but a failure. A
// folder without golden.json, which a partial copy may leave, counts as missing.
inline std::string absent_golden(const std::string& name) {
  if (!name.starts_with("shared/") || std::filesystem::exists(golden_path(name) + "/golden.json")) return "";
  return "no shared data: goldens/" + name.substr(std::string_view("shared/").size());
}
inline Golden read_golden(const std::string& name) { return read_golden_folder(golden_path(name)); }

// The distance of logits from stored rows: the greatest absolute difference, and ‖a−b‖/‖b‖.
struct Distance {
  double absolute = 0;
  double relative = 0;
};

// Returns the distance. `logits` must end with the rows in `want`; if there are fewer rows, the distance is infinite.
inline Distance distance(std::span<const float> logits, std::span<const float> want) {
  if (logits.size() < want.size() || want.empty()) return {INFINITY, INFINITY};
  const std::span<const float> got = logits.last(want.size());
  Distance d;
  double difference2 = 0;
  double norm2 = 0;
  for (std::size_t k = 0; k < want.size(); ++k) {
    const double difference = static_cast<double>(got[k]) - static_cast<double>(want[k]);
    d.absolute = std::isnan(difference) ? INFINITY : std::max(d.absolute, std::abs(difference));
    difference2 += difference * difference;
    norm2 += static_cast<double>(want[k]) * static_cast<double>(want[k]);
  }
  d.relative = std::isnan(difference2) ? INFINITY : std::sqrt(difference2 / norm2);
  return d;
}

}  // namespace tessera::testing
