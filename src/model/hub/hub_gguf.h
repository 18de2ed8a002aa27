// Selects models in GGUF format on the hub. A repository usually has several such models, one for each type of weights.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/hub/hub_cache.h"

namespace tessera {

// Parses "org/name", or "org/name:WHICH", where WHICH is HubModel::gguf. Returns nothing if the text has neither form.
std::optional<HubModel> parse_hub_name(std::string_view text);

// From the file names of a repository, returns the files of the model that `which` selects. `which` is a file's path or
// name, or the type that ends a file name before ".gguf" ("Q4_K_M", in upper or lower case). For a split set the result
// has all members, in order. If several models fit, a path means the file with exactly this path, and models outside of
// subfolders come before others. Returns not_found if no model fits, and the message lists the available types. Returns
// invalid_argument if several models are left.
Result<std::vector<std::string>> choose_gguf(std::span<const std::string> names, std::string_view which);

// Returns the projector to download with the GGUF file `model`: the file `named`. If `named` is "", returns the only
// projector in the model's folder or, if that folder has no projector, the only projector outside of subfolders.
// Returns nothing if `named` is "" and there is no such projector, or if there are several. Returns not_found if there
// is no file `named`, and the message lists the projectors.
Result<std::optional<std::string>> choose_projector(std::span<const std::string> names, std::string_view named,
                                                    std::string_view model);

// Returns the names of a repository's projectors, in order.
std::vector<std::string> projectors_of(std::span<const std::string> names);

}  // namespace tessera
