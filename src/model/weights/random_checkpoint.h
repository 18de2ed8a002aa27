// Writes random weights as a checkpoint in Hugging Face's layout. The checkpoint contains every stored tensor from
// which a model's weights are made, with the name, shape and layout that the loader expects. The values are the random
// values of dummy_source(), rounded to the files' type. So a model that is loaded from the checkpoint computes the same
// as a model with dummy weights of that type.
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
  // Maximum size of a file's data, in bytes. A larger tensor gets a file of its own. Hugging Face's tools have the same
  // default.
  std::int64_t max_shard_bytes = 5'000'000'000;
};

class RandomCheckpoint {
 public:
  struct File {
    std::string name;                    // "model.safetensors", or "model-00001-of-00003.safetensors" …
    std::vector<std::size_t> tensors{};  // indices into tensors()
    std::int64_t bytes = 0;              // size of the data
  };

  // Plans the checkpoint. `weights` are the weights of a model with one rank (ModelOptions::tp_size 1). Each tensor is
  // stored in the type of the weight that is made from it, or in F32 if weights of different types are made from it.
  // Returns kUnimplemented for quantised tensors except experts in MXFP4. Returns kInvalidArgument if two weights are
  // made from one tensor but declare different shapes or initialisations for it, or if only one of them declares that
  // it is stored transposed.
  static Result<RandomCheckpoint> plan(std::span<const WeightSpec> weights, const RandomCheckpointOptions& options);

  // Returns the tensors in the order in which the model requests them. A tied LM head has no separate tensor.
  std::span<const TensorLayout> tensors() const { return tensors_; }
  std::span<const File> files() const { return files_; }
  std::int64_t total_bytes() const;  // size of the data; headers and the index add a few hundred bytes for each tensor
  std::int64_t total_elements() const;

  // Writes the files to `folder`, which must exist, and model.safetensors.index.json if there are several files. Each
  // thread needs kWriteBytes of memory, or twice as much for transposed tensors. A file gets its final name when it is
  // complete and on disk. TensorContent describes `on_written`. After an error none of these files exists, even if a
  // file of the same name existed before.
  Status write(const std::string& folder, const std::function<Status(std::int64_t bytes)>& on_written) const;

 private:
  RandomCheckpoint() = default;
  Status add(const WeightSpec& spec, const WeightPart& part);
  void divide(std::int64_t max_shard_bytes);
  Status fill(std::size_t tensor, std::int64_t offset, std::span<std::byte> to) const;
  Status write_files(const std::string& folder, const std::function<Status(std::int64_t bytes)>& on_written) const;

  // Describes where the content of one of the checkpoint's tensors comes from: the part of a weight that the tensor
  // stores, and how this weight is initialised.
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
