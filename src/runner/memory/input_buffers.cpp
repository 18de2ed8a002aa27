#include "tessera/runner/memory/input_buffers.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/device/alignment.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {
namespace {

std::size_t aligned(std::int64_t bytes) { return static_cast<std::size_t>(align_up(bytes)); }

std::size_t last_ids_bytes(const InputLimits& limits) { return aligned(limits.max_requests * 4); }

Status check_count(std::string_view what, std::int64_t count, std::int64_t most) {
  if (count <= most) return ok_status();
  return internal_error(fmt::format("static inputs hold {} {}, {} were staged", most, what, count));
}

}  // namespace

InputLimits input_limits(const ModelGraphs& graphs, const RunnerOptions& options) {
  InputLimits limits{.max_tokens = max_padded_tokens(options),
                     .max_requests = options.max_requests,
                     .max_rows = max_head_rows(options),
                     .cache_groups = {}};
  for (const ir::CacheGroup& group : graphs.body.cache_groups) limits.cache_groups.push_back(group.name);
  limits.extra.rope_positions = std::ranges::any_of(
      graphs.body.inputs, [&](ir::ValueId id) { return graphs.body.value(id).name == input_names::kRopePositions; });
  limits.extra.draft_rows = graphs.draft.has_value();
  limits.extra.adapters = graphs.adapted.has_value();
  return limits;
}

std::size_t InputBuffers::packed(const auto& inputs, std::size_t count, std::int64_t elements) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i)
    bytes += aligned(inputs[i].lists * elements * static_cast<std::int64_t>(ir::dtype_size(inputs[i].dtype)));
  return bytes;
}

InputBuffers::InputBuffers(InputLimits limits, StepBuffer& step)
    : limits_(std::move(limits)), step_(&step), table_(make_input_table(limits_.cache_groups, limits_.extra)) {}

std::int64_t InputBuffers::bytes_needed(const InputLimits& limits) {
  const InputTable table = make_input_table(limits.cache_groups, limits.extra);
  return static_cast<std::int64_t>(packed(table.rows, table.rows.size(), limits.max_rows) +
                                   packed(table.tokens, table.tokens.size(), limits.max_tokens) +
                                   last_ids_bytes(limits));
}

Result<InputBuffers> InputBuffers::create(Device& device, InputLimits limits, StepBuffer& step) {
  InputBuffers buffers(std::move(limits), step);
  const InputTable& table = buffers.table_;
  const std::size_t row_bytes = packed(table.rows, table.rows.size(), buffers.limits_.max_rows);
  buffers.rows_begin_ = step.reserve(row_bytes);
  buffers.boundary_ = buffers.rows_begin_ + row_bytes;
  step.reserve(packed(table.tokens, table.tokens.size(), buffers.limits_.max_tokens));
  buffers.last_ids_ = TRY(device.allocate(last_ids_bytes(buffers.limits_), "last ids"));
  return buffers;
}

std::size_t InputBuffers::token_offset(std::size_t input, std::int64_t tokens) const {
  return boundary_ + packed(table_.tokens, input, tokens);
}

std::size_t InputBuffers::row_offset(std::size_t input, std::int64_t rows) const {
  return boundary_ - packed(table_.rows, table_.rows.size(), rows) + packed(table_.rows, input, rows);
}

void InputBuffers::add_to(ExternalValues& externals) const {
  for (std::size_t i = 0; i < table_.tokens.size(); ++i) {
    externals.add(table_.tokens[i].name, [this, i](const ir::Bucket& bucket) {
      return step_->device_address(token_offset(i, bucket[ir::Symbol::kTokens]));
    });
  }
  for (std::size_t i = 0; i < table_.rows.size(); ++i) {
    externals.add(table_.rows[i].name, [this, i](const ir::Bucket& bucket) {
      return step_->device_address(row_offset(i, bucket[ir::Symbol::kRows]));
    });
  }
  externals.add(std::string(input_names::kLastIds), last_ids_->data());
}

Status InputBuffers::stage_tokens(const StagedTokens& tokens, std::int64_t padded_tokens) {
  TRY(check_count("tokens", padded_tokens, limits_.max_tokens));
  const std::size_t bytes = packed(table_.tokens, table_.tokens.size(), padded_tokens);
  std::byte* const to = step_->host(boundary_);
  for (std::size_t i = 0; i < table_.tokens.size(); ++i) {
    const TokenInput& input = table_.tokens[i];
    input.write(tokens, input.group, static_cast<std::size_t>(padded_tokens),
                to + (token_offset(i, padded_tokens) - boundary_));
  }
  step_->written(boundary_, bytes);
  if (limits_.extra.adapters) adapter_slots_ = tokens.batch.adapter_slots;
  return ok_status();
}

Status InputBuffers::stage_rows(std::span<const std::int32_t> rows, std::span<const SampleRow> sampling,
                                std::int64_t padded_rows) {
  TRY(check_count("wanted rows", padded_rows, limits_.max_rows));
  const std::size_t bytes = packed(table_.rows, table_.rows.size(), padded_rows);
  const std::size_t begin = boundary_ - bytes;
  std::byte* const to = step_->host(begin);
  for (std::size_t i = 0; i < table_.rows.size(); ++i) {
    table_.rows[i].write({.rows = rows, .sampling = sampling, .adapter_slots = adapter_slots_},
                         static_cast<std::size_t>(padded_rows), to + (row_offset(i, padded_rows) - begin));
  }
  step_->written(begin, bytes);
  return ok_status();
}

Status InputBuffers::keep_sampled(DeviceAddress sampled_ids, std::int64_t first, std::int64_t count, Stream& stream) {
  // A forward that computes log-probabilities of prompts may want more rows than last_ids has elements. The surplus
  // rows are never sampled, so they are not copied.
  const std::int64_t kept = std::clamp<std::int64_t>(limits_.max_requests - first, 0, count);
  return stream.copy(last_ids_->data() + first * 4, sampled_ids, static_cast<std::size_t>(kept) * 4);
}

Status InputBuffers::download_sampled(std::span<TokenId> ids, Stream& stream) const {
  TRY(check_count("last ids", std::ssize(ids), limits_.max_requests));
  return stream.download(ids.data(), last_ids_->data(), ids.size_bytes());
}

}  // namespace tessera
