// Lists the architectures of GGUF files that this engine supports, and how their metadata and tensor names are
// converted.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/model/gguf/config_writer.h"
#include "tessera/model/gguf/tensor_names.h"

namespace tessera {

// How Hugging Face's config.json and checkpoint describe a model that reads images. The model's vision tower is in a
// projector's file.
struct GgufImages {
  std::string_view projector;     // the tower's clip.projector_type
  std::string_view architecture;  // Hugging Face's name of the model with its tower
  std::string_view body_prefix;   // prefix of the names of the language model's tensors
  bool interleaved_rope = true;   // whether time, height and width take rotated pairs in turn
};

struct GgufArchitecture {
  std::string_view name;  // general.architecture
  // Writes "architectures" and the members that only some architectures have. Before this call, the caller writes the
  // members that all architectures have.
  Status (*write)(ConfigWriter& writer);
  // Rules for the tensors whose names differ from the names that most architectures use.
  std::span<const TensorNameRule> names = {};
  // Whether Hugging Face calls the next-token layers "mtp.layers.<n>.", where n begins at 0. If false, they have names
  // like the body's layers, and their numbers continue those of the body's layers.
  bool drafts_apart = false;
  // Whether attention.head_count_kv and feed_forward_length may differ by layer. If true, `write` reads these keys.
  bool sizes_by_layer = false;
  // Whether linears in NVFP4 become tensors of ModelOpt's NVFP4 (gguf_tensors.h). If false, they are dequantised.
  bool keeps_nvfp4 = true;
  std::span<const GgufImages> images = {};  // one for each projector type that the engine runs with this architecture
};

// Returns the architecture of the file. Returns unimplemented, with a list of the known architectures, if the file's
// architecture is unknown.
Result<const GgufArchitecture*> gguf_architecture(const GgufModel& model);

// Returns the names of the architectures with images, for messages.
std::string architectures_with_images();

// Returns the architecture of this name; null if it is unknown.
const GgufArchitecture* find_gguf_architecture(std::string_view name);

}  // namespace tessera
