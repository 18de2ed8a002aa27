#include "tessera/runner/input_buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tessera/device/alignment.h"
#include "tessera/model/model.h"
#include "tessera/runner/host_floats.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {
namespace {

std::string slots_name(std::string_view group) { return std::string(input_names::kSlots) + std::string(group); }

}  // namespace

InputLimits input_limits(const ModelGraphs& graphs, const RunnerOptions& options) {
  const ir::Type& hidden = graphs.body.value(graphs.body.outputs[0]).type;
  InputLimits limits{.max_tokens = max_padded_tokens(options),
                     .max_requests = options.max_requests,
                     .max_rows = max_head_rows(options),
                     .cache_groups = {},
                     .hidden_size = *hidden.shape.back().constant(),
                     .dtype = hidden.dtype};
  for (const ir::CacheGroup& group : graphs.body.cache_groups) limits.cache_groups.push_back(group.name);
  return limits;
}

std::vector<InputBuffers::Field> InputBuffers::fields_of(const InputLimits& limits) {
  std::vector<Field> fields;
  const auto add = [&](std::string_view name, std::int64_t elements, std::int64_t element_bytes) {
    fields.push_back({.name = std::string(name), .elements = elements, .element_bytes = element_bytes});
  };
  add(input_names::kInputIds, limits.max_tokens, 4);
  add(input_names::kInputRows, limits.max_tokens, 4);
  add(input_names::kPositions, limits.max_tokens, 4);
  for (const std::string& group : limits.cache_groups) add(slots_name(group), limits.max_tokens, 4);
  add(input_names::kLastIds, limits.max_requests, 4);
  add(input_names::kWantedRows, limits.max_rows, 4);
  add(input_names::kTemperature, limits.max_rows, 4);
  add(input_names::kTopK, limits.max_rows, 4);
  add(input_names::kTopP, limits.max_rows, 4);
  add(input_names::kMinP, limits.max_rows, 4);
  add(input_names::kSeed, limits.max_rows, 8);
  add(input_names::kChoice, limits.max_rows, 4);
  add(input_names::kSamplePosition, limits.max_rows, 4);
  // The last one: by far the largest, and without a copy on the host until a batch has any.
  add(input_names::kInputEmbeds, limits.max_tokens * limits.hidden_size,
      static_cast<std::int64_t>(ir::dtype_size(limits.dtype)));
  return fields;
}

std::int64_t InputBuffers::bytes_needed(const InputLimits& limits) {
  std::int64_t total = 0;
  for (const Field& field : fields_of(limits)) total += align_up(field.elements * field.element_bytes);
  return total;
}

Result<InputBuffers> InputBuffers::create(Device& device, InputLimits limits) {
  InputBuffers buffers;
  buffers.fields_ = fields_of(limits);
  for (const std::string& group : limits.cache_groups) buffers.slot_fields_.push_back(slots_name(group));
  buffers.memory_ = TRY(device.allocate(static_cast<std::size_t>(bytes_needed(limits)), "static input buffers"));
  std::byte* next = buffers.memory_->data();
  for (Field& field : buffers.fields_) {
    field.address = next;
    next += align_up(field.elements * field.element_bytes);
  }
  buffers.host_.resize(static_cast<std::size_t>(buffers.fields_.back().address - buffers.memory_->data()));
  buffers.limits_ = std::move(limits);
  return buffers;
}

void InputBuffers::add_to(ExternalValues& externals) const {
  for (const Field& field : fields_) externals.add(field.name, field.address);
}

InputBuffers::Field& InputBuffers::field(std::string_view name) {
  return *std::find_if(fields_.begin(), fields_.end(), [&](const Field& f) { return f.name == name; });
}

template <class T, class ValueAt>
Status InputBuffers::write(std::string_view name, std::int64_t count, const ValueAt& value_at) {
  Field& to = field(name);
  if (count > to.elements)
    return internal_error(fmt::format("static input {} holds {} elements, {} were staged", name, to.elements, count));
  std::byte* staged = host_.data() + (to.address - memory_->data());
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = value_at(static_cast<std::size_t>(i));
    std::memcpy(staged + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  return ok_status();
}

Status InputBuffers::upload(std::string_view name, std::int64_t count, Stream& stream) {
  const Field& from = field(name);
  return stream.upload(from.address, host_.data() + (from.address - memory_->data()),
                       static_cast<std::size_t>(count * from.element_bytes));
}

Status InputBuffers::stage_tokens(const ForwardBatch& batch, std::int64_t padded_tokens, TokenId padding_id,
                                  Stream& stream) {
  const auto tokens = static_cast<std::size_t>(batch.num_tokens());
  const auto or_padding = [&](const auto& values, auto padding) {
    return [&values, padding, tokens](std::size_t i) { return i < tokens ? values[i] : padding; };
  };
  TRY(write<TokenId>(input_names::kInputIds, padded_tokens, or_padding(batch.input_ids, padding_id)));
  TRY(write<std::int32_t>(input_names::kInputRows, padded_tokens, or_padding(batch.input_rows, std::int32_t{-1})));
  TRY(write<std::int32_t>(input_names::kPositions, padded_tokens, or_padding(batch.positions, std::int32_t{0})));
  for (const std::string_view name : {input_names::kInputIds, input_names::kInputRows, input_names::kPositions})
    TRY(upload(name, padded_tokens, stream));
  for (std::size_t g = 0; g < slot_fields_.size(); ++g) {
    TRY(write<SlotId>(slot_fields_[g], padded_tokens, or_padding(batch.groups[g].slots, SlotId(0))));
    TRY(upload(slot_fields_[g], padded_tokens, stream));
  }
  return batch.input_embeds.empty() ? ok_status() : stage_embeddings(batch, stream);
}

Status InputBuffers::stage_embeddings(const ForwardBatch& batch, Stream& stream) {
  const std::size_t row_bytes = static_cast<std::size_t>(limits_.hidden_size) * ir::dtype_size(limits_.dtype);
  embeddings_.resize(std::max(embeddings_.size(), batch.input_embeds.size() * ir::dtype_size(limits_.dtype)));
  TRY(narrow_floats(batch.input_embeds, limits_.dtype, embeddings_.data()));
  std::byte* const base = field(input_names::kInputEmbeds).address;
  const auto given = [&](std::size_t t) { return batch.input_ids[t] == TokenId(-1) && batch.input_rows[t] == -1; };
  const std::byte* next = embeddings_.data();
  // Tokens of an image are neighbours: a copy for each run of them.
  for (std::size_t t = 0; t < batch.input_ids.size(); ++t) {
    if (!given(t)) continue;
    const std::size_t first = t;
    while (t < batch.input_ids.size() && given(t)) ++t;
    const std::size_t bytes = (t - first) * row_bytes;
    TRY(stream.upload(base + first * row_bytes, next, bytes));
    next += bytes;
  }
  return ok_status();
}

Status InputBuffers::stage_rows(std::span<const std::int32_t> rows, std::span<const SampleRow> sampling,
                                std::int64_t padded_rows, Stream& stream) {
  const auto row = [&](std::size_t i) { return i < rows.size() ? rows[i] : 0; };
  const auto sample = [&](std::size_t i) { return i < sampling.size() ? sampling[i] : SampleRow{}; };
  TRY(write<std::int32_t>(input_names::kWantedRows, padded_rows, row));
  TRY(write<float>(input_names::kTemperature, padded_rows, [&](std::size_t i) { return sample(i).temperature; }));
  TRY(write<std::int32_t>(input_names::kTopK, padded_rows, [&](std::size_t i) { return sample(i).top_k; }));
  TRY(write<float>(input_names::kTopP, padded_rows, [&](std::size_t i) { return sample(i).top_p; }));
  TRY(write<float>(input_names::kMinP, padded_rows, [&](std::size_t i) { return sample(i).min_p; }));
  TRY(write<std::int64_t>(input_names::kSeed, padded_rows, [&](std::size_t i) { return sample(i).seed; }));
  TRY(write<std::int32_t>(input_names::kChoice, padded_rows, [&](std::size_t i) { return sample(i).choice; }));
  TRY(write<std::int32_t>(input_names::kSamplePosition, padded_rows,
                          [&](std::size_t i) { return sample(i).position; }));
  // The fields of rows are neighbours and short: one copy takes them all.
  const std::byte* first = field(input_names::kWantedRows).address;
  const Field& last = field(input_names::kSamplePosition);
  const auto bytes = static_cast<std::size_t>(last.address + padded_rows * last.element_bytes - first);
  const std::ptrdiff_t offset = first - memory_->data();
  return stream.upload(memory_->data() + offset, host_.data() + offset, bytes);
}

Status InputBuffers::keep_sampled(const std::byte* sampled_ids, std::int64_t first, std::int64_t count,
                                  Stream& stream) {
  const Field& last_ids = field(input_names::kLastIds);
  // Rows past what last_ids holds belong to no request: scoring wants many rows and samples none.
  const std::int64_t kept = std::clamp<std::int64_t>(last_ids.elements - first, 0, count);
  return stream.copy(last_ids.address + first * 4, sampled_ids, static_cast<std::size_t>(kept) * 4);
}

Status InputBuffers::download_sampled(std::span<TokenId> ids, Stream& stream) const {
  const auto it =
      std::find_if(fields_.begin(), fields_.end(), [](const Field& f) { return f.name == input_names::kLastIds; });
  if (static_cast<std::int64_t>(ids.size()) > it->elements)
    return internal_error(fmt::format("last_ids holds {} ids, {} are wanted", it->elements, ids.size()));
  return stream.download(ids.data(), it->address, ids.size_bytes());
}

}  // namespace tessera
