// Finds the projector that belongs to a model in GGUF files.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

struct FoundProjector {
  std::string path;  // empty: the model is used without images
  std::string note;  // why a projector beside the model is not used; empty if there is nothing to say
};

// Returns the projector that the user names: a path, or the name of a file beside the model. Returns not_found if there
// is no such file. `model_path` is as described in model_path.h.
Result<std::string> find_named_projector(const std::string& model_path, const std::string& name);

// Returns the only projector beside the model. If the projector's type is not supported, the path in the result is
// empty, and the note says why. Path and note are both empty if `model_path` is neither a GGUF file nor a folder with
// one, if there is no projector, or if the engine supports no projector for the model's architecture. Returns
// invalid_argument if there are several projectors, and the message lists their names.
Result<FoundProjector> find_projector_beside(const std::string& model_path);

// Returns whether the path's last part has the form of a projector's name, "mmproj-….gguf".
bool is_projector_name(std::string_view path);

}  // namespace tessera
