// Reads the linears of a quantised checkpoint and dequantises them to float32.
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
  // Borrows both arguments.
  QuantisedSource(const Checkpoint& checkpoint, const WeightFormats& formats)
      : checkpoint_(checkpoint), formats_(formats) {}

  struct Linear {
    // "<module>.weight" as F32, computed while it is read. It has elements only if find() was given the tensor that
    // contains the linear's values.
    StoredTensor numbers;
    std::string format;      // "FP8 e4m3, blocks of 128 × 128"
    std::int64_t bytes = 0;  // total size of the linear's tensors
  };
  // Returns the linear whose values `tensor` contains. If `tensor` contains scales or other parts of a linear, returns
  // a Linear without elements. Returns nothing for an unquantised tensor. Returns unimplemented for an unsupported
  // format (zero points, permuted columns); data_loss for tensors that contradict each other.
  Result<std::optional<Linear>> find(const StoredTensor& tensor) const;

 private:
  // part() returns the tensor `name` of the linear `module`. This tensor must have `elements` elements. number()
  // returns the value of a tensor, which must contain a single number above 0.
  Result<const StoredTensor*> part(const std::string& module, const std::string& name, std::int64_t elements) const;
  Result<float> number(const std::string& module, const std::string& name) const;

  const Checkpoint& checkpoint_;
  const WeightFormats& formats_;
};

}  // namespace tessera
