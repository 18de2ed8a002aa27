// Sorts the tensors of an adapter's file by the model's modules that they change.
#pragma once

#include <map>
#include <string>

#include "tessera/base/status.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera {

// The LoRA matrices A and B of one module, as stored in the file.
struct AdapterPair {
  const StoredTensor* a = nullptr;
  const StoredTensor* b = nullptr;
  bool embeds = false;  // the matrices change an embedding, not a linear
};

// The tensors belong to the file. The keys are the names of modules, without the prefix that PEFT puts before them.
struct AdapterTensors {
  std::map<std::string, AdapterPair> pairs;          // a pair may lack A or B
  std::map<std::string, const StoredTensor*> whole;  // matrices that replace the model's own; not in `pairs`

  // Returns unimplemented for a tensor of an unsupported kind, and invalid_argument for tensors that contradict each
  // other, for a type that is not floating-point, and for a file without tensors. Omits copies of the base model's
  // matrices, and logs their names.
  static Result<AdapterTensors> of(const SafetensorsFile& file);
};

}  // namespace tessera
