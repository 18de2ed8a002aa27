// Holds a low-rank adapter (LoRA) in host memory, with one share for each rank (GPU) of the model.
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

// Immutable. The device allocates the adapter's host memory, so the device must outlive the adapter. The memory is
// pinned if the device supports that.
class Adapter {
 public:
  // Reads a folder written by PEFT: adapter_config.json and adapter_model.safetensors. Returns the errors of
  // AdapterConfig::read() and of SafetensorsFile::open().
  //
  // Also returns invalid_argument in these cases:
  // - The adapter changes a module that the model lacks, that has another shape in the model, or that is not among the
  //   targets.
  // - A LoRA rank is above the layout's limit, or differs from the rank in the settings.
  // - A module has only one of the matrices A and B, or a value is not finite.
  // - There is a whole matrix for a module that AdapterLimits::saved does not name.
  // Also returns unimplemented in these cases:
  // - A tensor belongs to DoRA or is a bias.
  // - A whole matrix replaces a matrix that is neither the head's nor the embedding's.
  // - The settings have ensure_weight_tying, and the adapter changes the head or the embedding.
  // - The folder has only adapter_model.bin.
  //
  // PEFT also writes the base model's own matrix (base_layer.weight) if the adapter changes the embedding or the head.
  // This matrix is not read, and a log message names it. Every other tensor is either used or named in an error.
  // Reads the disk and converts on the calling thread. An adapter of LoRA rank 16 for an 8B model takes tens of
  // milliseconds, and each whole matrix takes about a second. Thread-safe.
  static Result<std::shared_ptr<const Adapter>> load(const std::string& folder, const AdapterLayout& layout,
                                                     Device& device);

  const AdapterShare& share(std::size_t rank) const { return shares_[rank]; }
  std::size_t num_shares() const { return shares_.size(); }  // the number of the model's ranks
  // Returns the largest LoRA rank of any module; 0 if there are only whole matrices.
  std::int64_t rank() const { return rank_; }
  const std::string& path() const { return path_; }
  const std::string& base_model() const { return base_model_; }  // the base model's name in the settings; may be empty

 private:
  Adapter() = default;
  std::vector<AdapterShare> shares_;
  std::int64_t rank_ = 0;
  std::string path_;
  std::string base_model_;
};

}  // namespace tessera
