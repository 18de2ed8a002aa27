// The files of a model folder that hold its weights, in the order in which they are tried:
//   model.safetensors                     one file
//   model.safetensors.index.json          shards by its weight_map
//   model-00001-of-00003.safetensors …    shards without an index
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

inline constexpr std::string_view kWeightFile = "model.safetensors";
inline constexpr std::string_view kWeightIndex = "model.safetensors.index.json";

// Parses "model-00002-of-00005.safetensors" to {2, 5}.
struct ShardNumber {
  int index = 0;
  int count = 0;
};
std::optional<ShardNumber> shard_number(std::string_view name);

// Reads the weight_map of the index file `path`: tensor → shard, where each shard is a plain name of a .safetensors
// file in the same folder. not_found if the file does not exist, invalid_argument if its content is wrong.
Result<std::map<std::string, std::string>> read_weight_map(const std::string& path);

}  // namespace tessera
