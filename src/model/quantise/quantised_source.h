// The linears of a quantised checkpoint as numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/formats/weight_formats.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {

class QuantisedSource {
 public:
  // Borrows both.
  QuantisedSource(const Checkpoint& checkpoint, const WeightFormats& formats)
      : checkpoint_(checkpoint), formats_(formats) {}

  struct Linear {
    StoredTensor numbers;    // "<module>.weight" of F32, made while it is read; without elements if `tensor` is a part
    std::string format;      // "FP8 e4m3, blocks of 128 × 128"
    std::int64_t bytes = 0;  // all tensors of the linear
  };
  // Returns the linear whose values `tensor` holds, and one without elements if it holds scales or the like of a
  // linear. Nothing for a tensor of numbers. unimplemented for a format whose numbers are not read here (zero points,
  // columns in another order); data_loss for tensors that do not fit each other.
  Result<std::optional<Linear>> find(const StoredTensor& tensor) const;

 private:
  // Return a tensor of a linear: with this many elements, and one that is a single number above 0.
  Result<const StoredTensor*> part(const std::string& module, const std::string& name, std::int64_t elements) const;
  Result<float> number(const std::string& module, const std::string& name) const;

  const Checkpoint& checkpoint_;
  const WeightFormats& formats_;
};

}  // namespace tessera
