// A low-rank adapter in host memory, in the form in which it is copied to a slot of the device's tables
// (runner/adapters/adapter_tables.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/adapters/adapter_layout.h"

namespace tessera {

// What an adapter adds to one linear of the layout. Matrices have the layout's type.
struct AdapterLinearPart {
  std::vector<std::int32_t> ranks;  // [modules]; 0: the adapter does not change the module
  std::vector<float> scales;        // [modules]
  std::int64_t most_rank = 0;       // the largest of `ranks`; 0: nothing is added
  std::size_t a_offset = 0;         // in Adapter::bytes(): for each module in order [rank, cols]
  std::size_t b_offset = 0;         // [most_rank, rows of the linear]: B transposed; zeros behind a module's rank
};

// Immutable. Its memory is pinned where the device has such memory, so the device must outlive it.
class Adapter {
 public:
  // Reads a folder that PEFT has written: adapter_config.json and adapter_model.safetensors. Every tensor of the file
  // is used or named in an error. The errors are those of AdapterConfig::read() and of SafetensorsFile::open(), and
  //   invalid_argument  a module that the model does not have, or another shape than its own; a rank above the layout's
  //                     or other than the settings'; a module that is no target; A without B; a value that is not
  //                     finite
  //   unimplemented     tensors of DoRA, embeddings, biases and whole modules
  // Reads the disk and converts on the calling thread: tens of milliseconds for a model of 8 G parameters. Thread-safe.
  static Result<std::shared_ptr<const Adapter>> load(const std::string& folder, const AdapterLayout& layout,
                                                     Device& device);

  std::span<const AdapterLinearPart> linears() const { return linears_; }  // [layout's linears]
  const std::byte* bytes() const { return memory_->data(); }
  std::int64_t host_bytes() const { return static_cast<std::int64_t>(memory_->size()); }
  std::int64_t rank() const { return rank_; }  // the largest of any module
  const std::string& path() const { return path_; }
  const std::string& base_model() const { return base_model_; }  // as its settings name it; may be empty

 private:
  Adapter() = default;
  std::vector<AdapterLinearPart> linears_;
  std::unique_ptr<HostAllocation> memory_;
  std::int64_t rank_ = 0;
  std::string path_;
  std::string base_model_;
};

}  // namespace tessera
