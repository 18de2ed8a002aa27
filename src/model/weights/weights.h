// The weights of a model in a device's memory, and how they get there.
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

// Returns the type with that name in files. kUnimplemented for types that no weight has.
Result<StoredDtype> stored_dtype_of(ir::DType dtype);

// All weights in one allocation. Addresses are fixed for the object's life, so graphs may be captured before or while
// the content is filled in.
class Weights {
 public:
  using Addresses = std::map<std::string, DeviceAddress, std::less<>>;

  // Allocates space for the weights, with undefined content.
  static Result<Weights> allocate(std::span<const WeightSpec> specs, Device& device);
  // Calls allocate() and fill_weights().
  static Result<Weights> load(std::span<const WeightSpec> specs, const WeightSource& source, Device& device,
                              bool show_progress);

  const Addresses& addresses() const { return addresses_; }
  std::int64_t total_bytes() const { return static_cast<std::int64_t>(memory_->size()); }
  // Returns the memory, for code that fills it on a thread of its own and may outlive this object.
  std::shared_ptr<const Allocation> memory() const { return memory_; }

 private:
  std::shared_ptr<Allocation> memory_;
  Addresses addresses_;
};

// Fills every weight at its address; the content is complete when the call returns. May run on a thread of its own
// beside captures. Shows a progress bar on standard error if `show_progress`.
Status fill_weights(std::span<const WeightSpec> specs, const Weights::Addresses& addresses, const WeightSource& source,
                    Device& device, bool show_progress);

}  // namespace tessera
