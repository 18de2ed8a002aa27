// Models in GGUF files on the hub. A repository holds many, one for each type of their weights.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/hub/hub_cache.h"

namespace tessera {

// Parses "org/name", or "org/name:WHICH", where WHICH is HubModel::gguf. Nothing if the text is neither.
std::optional<HubModel> parse_hub_name(std::string_view text);

// Returns the files of the model that `which` names, among the names of a repository's files: the file of that name, or
// the one whose name ends in that type before ".gguf" ("Q4_K_M", in letters of any case). Of a split set it returns all
// members, in order. not_found, with the types that there are, if none fits; invalid_argument if several do.
Result<std::vector<std::string>> choose_gguf(std::span<const std::string> names, std::string_view which);

}  // namespace tessera
