// The weights of a model in a device's memory, and their way there.
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

// The type of that name in files. kUnimplemented for those that no weight has.
Result<StoredDtype> stored_dtype_of(ir::DType dtype);

// All weights in one allocation. Addresses are fixed for the object's life: graphs may be captured before, or while,
// the content is filled in.
class Weights {
 public:
  using Addresses = std::map<std::string, DeviceAddress, std::less<>>;

  // Space for the weights, of undefined content.
  static Result<Weights> allocate(std::span<const WeightSpec> specs, Device& device);
  // allocate() and fill_weights().
  static Result<Weights> load(std::span<const WeightSpec> specs, const WeightSource& source, Device& device,
                              bool show_progress);

  const Addresses& addresses() const { return addresses_; }
  std::int64_t total_bytes() const { return static_cast<std::int64_t>(memory_->size()); }
  // For who fills the memory on a thread of its own, which may outlive this object.
  std::shared_ptr<const Allocation> memory() const { return memory_; }

 private:
  std::shared_ptr<Allocation> memory_;
  Addresses addresses_;
};

// Fills every weight at its address; the content is there when the call returns. May run on a thread of its own
// beside captures. A progress bar on standard error where `show_progress`.
Status fill_weights(std::span<const WeightSpec> specs, const Weights::Addresses& addresses, const WeightSource& source,
                    Device& device, bool show_progress);

}  // namespace tessera
