// The architectures of GGUF files that this engine reads.
#pragma once

#include <span>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/model/gguf/config_writer.h"
#include "tessera/model/gguf/tensor_names.h"

namespace tessera {

struct GgufArchitecture {
  std::string_view name;  // general.architecture
  // Writes "architectures" and the members that not all architectures have. The members of all are already there.
  Status (*write)(ConfigWriter& writer);
  // The names of tensors that differ from those of most architectures.
  std::span<const TensorNameRule> names = {};
  // Whether the layers behind the body's, which draft tokens, are "mtp.layers.<n>.".
  bool drafts_apart = false;
};

// Returns the architecture of the file. unimplemented, with the known ones, for another.
Result<const GgufArchitecture*> gguf_architecture(const GgufModel& model);

// Returns the architecture of this name; null for an unknown one.
const GgufArchitecture* find_gguf_architecture(std::string_view name);

}  // namespace tessera
