// Reads projectors. These are GGUF files ("mmproj-….gguf") that contain the vision tower of a language model in another
// GGUF file.
#pragma once

#include <string_view>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/model/gguf/config_writer.h"
#include "tessera/model/gguf/gguf_architectures.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {

// Returns the entry of `architecture.images` for this projector's type. It says how Hugging Face's config.json
// describes a language model of this architecture with such a projector. Returns invalid_argument for a file that is no
// projector, and unimplemented for a type that the engine does not run with this architecture, such as an audio
// projector. The message names the file, the key, its value and what is accepted.
Result<const GgufImages*> projector_images(const GgufModel& projector, const GgufArchitecture& architecture);

// Writes the members that a config.json has for a model with images: the architecture's name, "vision_config", the ids
// of the tokens that stand for images, and the sections of the rotation. Returns invalid_argument if the projector does
// not fit the language model, unimplemented for an activation that the tower does not have, and data_loss if a tensor
// that determines a size is missing. Preconditions: `images` is projector_images() of the model's projector, and the
// members of the language model are already written.
Status write_images(ConfigWriter& writer, const GgufImages& images);

// Returns the tower's tensors under Hugging Face's names and in Hugging Face's layout. Returns data_loss if the file
// lacks a tensor that the metadata require, or if the shapes of tensors that belong together differ. Returns
// invalid_argument for wrong metadata, and unimplemented for types that cannot be read.
Result<TensorFile> read_projector_tensors(const GgufModel& projector);

// Returns those members of a preprocessor_config.json that the projector states: the sizes of patches, the mean and the
// deviation of the colours and, in a few files, the minimum and maximum numbers of pixels.
Result<Json> projector_processor(const GgufModel& projector);

// Returns the projector's type, "qwen3vl_merger"; invalid_argument if the file states none.
Result<std::string> projector_type(const GgufModel& projector);

}  // namespace tessera
