// Holds a model's weights in a device's memory, and loads them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/weights/weight_source.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Returns the StoredDtype that corresponds to `dtype`. Returns kUnimplemented for types that weights cannot have.
Result<StoredDtype> stored_dtype_of(ir::DType dtype);

// All weights of a model, in one allocation. Their addresses never change, so that graphs may be captured before or
// while the content is loaded.
class Weights {
 public:
  using Addresses = std::map<std::string, DeviceAddress, std::less<>>;

  // Allocates memory for the weights. Their content is undefined.
  static Result<Weights> allocate(std::span<const WeightSpec> specs, Device& device);
  // Calls allocate() and fill_weights().
  static Result<Weights> load(std::span<const WeightSpec> specs, const WeightSource& source, Device& device,
                              bool show_progress);

  const Addresses& addresses() const { return addresses_; }
  std::int64_t total_bytes() const { return static_cast<std::int64_t>(memory_->size()); }
  // Returns the memory, for code that fills it on another thread and may outlive this object.
  std::shared_ptr<const Allocation> memory() const { return memory_; }

 private:
  std::shared_ptr<Allocation> memory_;
  Addresses addresses_;
};

// Writes the content of every weight to its address. All content is complete when the call returns. May run on another
// thread while graphs are captured. Shows a progress bar on standard error if `show_progress`.
Status fill_weights(std::span<const WeightSpec> specs, const Weights::Addresses& addresses, const WeightSource& source,
                    Device& device, bool show_progress);

}  // namespace tessera
