// Random weights as a checkpoint in Hugging Face's layout. It has every stored tensor from which the weights of a model
// are made, with the name, shape and layout that the loader reads, and the content of dummy_source(). A start from the
// files computes the same as a start from random weights, in the type of the files.
//
//   ModelGraphs graphs = TRY(build_model(config, {.dtype = ir::DType::kBFloat16}, ops, families));
//   RandomCheckpoint checkpoint = TRY(RandomCheckpoint::plan(graphs.weights, {.seed = 1}));
//   TRY(checkpoint.write("models/random", progress));
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

struct RandomCheckpointOptions {
  std::uint64_t seed = 0;  // the seed of dummy_source()
  // Bytes of data, unless a single tensor has more; Hugging Face's default
  std::int64_t max_shard_bytes = 5'000'000'000;
};

class RandomCheckpoint {
 public:
  struct File {
    std::string name;                    // "model.safetensors", or "model-00001-of-00003.safetensors" …
    std::vector<std::size_t> tensors{};  // indices into tensors()
    std::int64_t bytes = 0;              // bytes of data
  };

  // Plans the checkpoint. `weights` are those of a model with one rank (ModelOptions::tp_size 1). Each tensor is stored
  // in the type of its weight, or in F32 if weights of several types share it. kUnimplemented for quantised tensors,
  // whose random values are not defined; kInvalidArgument if two weights disagree about a tensor.
  static Result<RandomCheckpoint> plan(std::span<const WeightSpec> weights, const RandomCheckpointOptions& options);

  // Returns the tensors in the order in which the model requests them. A tied LM head has no tensor of its own.
  std::span<const TensorLayout> tensors() const { return tensors_; }
  std::span<const File> files() const { return files_; }
  std::int64_t total_bytes() const;  // bytes of data; headers and the index add a few hundred bytes for each tensor
  std::int64_t total_elements() const;

  // Writes the files and, if there are several, model.safetensors.index.json to `folder`, which must exist. Each thread
  // needs kWriteBytes of memory, twice that for transposed tensors. Each file gets its name once it is complete and on
  // disk. `on_written` as in TensorContent. After an error none of these files is left, whatever was there before.
  Status write(const std::string& folder, const std::function<Status(std::int64_t bytes)>& on_written) const;

 private:
  RandomCheckpoint() = default;
  Status add(const WeightSpec& spec, const WeightPart& part);
  void divide(std::int64_t max_shard_bytes);
  Status fill(std::size_t tensor, std::int64_t offset, std::span<std::byte> to) const;
  Status write_files(const std::string& folder, const std::function<Status(std::int64_t bytes)>& on_written) const;

  // The weight that a tensor is a part of.
  struct Origin {
    WeightSpec::Init init = WeightSpec::Init::kUniform;
    WeightPart part;
  };
  std::uint64_t seed_ = 0;
  std::vector<TensorLayout> tensors_;
  std::vector<Origin> origins_;  // in the order of tensors_
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::vector<File> files_;
};

}  // namespace tessera
