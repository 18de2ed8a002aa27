// A low-rank adapter in host memory: the share of each rank of the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/adapters/adapter_layout.h"
#include "tessera/model/adapters/adapter_share.h"

namespace tessera {

// Immutable. Its memory is pinned where the device has such memory, so the device must outlive it.
class Adapter {
 public:
  // Reads a folder that PEFT has written: adapter_config.json and adapter_model.safetensors. Every tensor of the file
  // is used or named in an error. The errors are those of AdapterConfig::read() and of SafetensorsFile::open(), and
  //   invalid_argument  a module that the model does not have, or another shape than its own; a rank above the layout's
  //                     or other than the settings'; a module that is no target; A without B; a value that is not
  //                     finite
  //   unimplemented     tensors of DoRA, biases and whole modules
  // Beside the change of an embedding or a head, PEFT writes the base's own matrix (base_layer.weight), which a message
  // of the log names and which is not read.
  // Reads the disk and converts on the calling thread: tens of milliseconds for a model of 8 G parameters. Thread-safe.
  static Result<std::shared_ptr<const Adapter>> load(const std::string& folder, const AdapterLayout& layout,
                                                     Device& device);

  const AdapterShare& share(std::size_t rank) const { return shares_[rank]; }
  std::size_t num_shares() const { return shares_.size(); }  // ranks of the model
  std::int64_t rank() const { return rank_; }                // the largest of any module
  const std::string& path() const { return path_; }
  const std::string& base_model() const { return base_model_; }  // as its settings name it; may be empty

 private:
  Adapter() = default;
  std::vector<AdapterShare> shares_;
  std::int64_t rank_ = 0;
  std::string path_;
  std::string base_model_;
};

}  // namespace tessera
