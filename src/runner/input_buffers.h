// Static input buffers (D6): every input of a forward at its maximum size and at one address for the
// runner's life. Before a forward the real values are staged and the padding set, so that a replayed
// graph sees defined rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/model.h"
#include "tessera/ops/forward_batch.h"
#include "tessera/piecewise/external_values.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

// How one wanted row becomes a token; ops/sample.h has the meaning.
struct SampleRow {
  float temperature = 0;   // 0: the most probable token
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;  // 0: all
  std::int64_t seed = 0;
  std::int32_t choice = 0;    // of the request's n choices
  std::int32_t position = 0;  // of the new token in its request
};

struct InputLimits {
  std::int64_t max_tokens = 0;    // of a forward, padding included
  std::int64_t max_requests = 0;  // length of last_ids
  std::int64_t max_rows = 0;      // wanted rows of one run of the head
  std::vector<std::string> cache_groups;
  std::int64_t hidden_size = 0;           // of an embedding
  ir::DType dtype = ir::DType::kFloat32;  // of embeddings
};

// Of a model's graphs.
InputLimits input_limits(const ModelGraphs& graphs, const RunnerOptions& options);

class InputBuffers {
 public:
  static Result<InputBuffers> create(Device& device, InputLimits limits);
  // What it takes of the device's memory.
  static std::int64_t bytes_needed(const InputLimits& limits);

  // Adds the address of every input, by the graph's names.
  void add_to(ExternalValues& externals) const;
  const InputLimits& limits() const { return limits_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

  // Token inputs of `batch` in the first rows; rows up to padded_tokens get `padding_id`, position 0
  // and slot 0, which no request owns. Precondition: batch.num_tokens() <= padded_tokens <= max_tokens.
  // Embeddings are staged where tokens have them, and padding has none.
  Status stage_tokens(const ForwardBatch& batch, std::int64_t padded_tokens, TokenId padding_id, Stream& stream);
  // Rows of the body's output for the head; padding takes row 0. `sampling` is of the first so many; others are greedy.
  Status stage_rows(std::span<const std::int32_t> rows, std::span<const SampleRow> sampling, std::int64_t padded_rows,
                    Stream& stream);
  // Copies sampled ids out of the arena: row r of last_ids from `first` on. On the device.
  Status keep_sampled(const std::byte* sampled_ids, std::int64_t first, std::int64_t count, Stream& stream);
  // The ids kept last, [count], once the stream has passed.
  Status download_sampled(std::span<TokenId> ids, Stream& stream) const;

 private:
  struct Field {
    std::string name;
    std::int64_t elements;
    std::int64_t element_bytes;
    std::byte* address = nullptr;
  };
  InputBuffers() = default;
  static std::vector<Field> fields_of(const InputLimits& limits);
  Status stage_embeddings(const ForwardBatch& batch, Stream& stream);
  Field& field(std::string_view name);
  template <class T, class ValueAt>
  Status write(std::string_view name, std::int64_t count, const ValueAt& value_at);
  Status upload(std::string_view name, std::int64_t count, Stream& stream);

  InputLimits limits_;
  std::vector<Field> fields_;
  std::vector<std::string> slot_fields_;  // [cache groups]
  std::unique_ptr<Allocation> memory_;
  std::vector<std::byte> host_;        // as memory_ up to embeddings: each field is written at its own offset
  std::vector<std::byte> embeddings_;  // of the batch that had most, in the device's type
};

}  // namespace tessera
