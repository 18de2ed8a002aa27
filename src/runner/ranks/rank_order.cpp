#include "tessera/runner/ranks/rank_order.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {

void pack_order(const RankOrder& order, MessageWriter& to) {
  to.word(static_cast<std::int64_t>(order.role));
  to.word(order.size);
  to.word(static_cast<std::int64_t>(order.form));
  to.number(order.seed);
  to.real(order.tolerance);
}

Result<RankOrder> unpack_order(RankOrderKind kind, MessageReader& from) {
  RankOrder order{.kind = kind};
  order.role = static_cast<RunnerRole>(TRY(from.choice("role", static_cast<std::int64_t>(RunnerRole::kVision))));
  order.size = TRY(from.choice("size", INT64_MAX));
  order.form = static_cast<GraphForm>(TRY(from.choice("form", static_cast<std::int64_t>(GraphForm::kFull))));
  order.seed = TRY(from.number("seed"));
  order.tolerance = TRY(from.real("tolerance"));
  TRY(from.finish());
  return order;
}

Status RankLimits::agree(const RankLimits& other) {
  if (other.max_running != max_running)
    return invalid_argument(
        fmt::format("it has room for {} requests at once, rank 0 for {}; max_running_requests of "
                    "at most {} is accepted",
                    other.max_running, max_running, std::min(max_running, other.max_running)));
  if (other.num_pages.size() != num_pages.size())
    return internal_error(
        fmt::format("it has {} cache groups, rank 0 has {}", other.num_pages.size(), num_pages.size()));
  for (std::size_t g = 0; g < num_pages.size(); ++g) num_pages[g] = std::min(num_pages[g], other.num_pages[g]);
  const auto keep_common = [](std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& others) {
    std::erase_if(sizes, [&](std::int64_t size) { return std::ranges::find(others, size) == others.end(); });
  };
  keep_common(prefill_sizes, other.prefill_sizes);
  keep_common(decode_sizes, other.decode_sizes);
  keep_common(vision_sizes, other.vision_sizes);
  return ok_status();
}

void pack_limits(const RankLimits& limits, MessageWriter& to) {
  to.list(limits.num_pages);
  to.list(limits.prefill_sizes);
  to.list(limits.decode_sizes);
  to.list(limits.vision_sizes);
  to.word(limits.max_running);
}

Result<RankLimits> unpack_limits(MessageReader& from) {
  RankLimits limits;
  TRY(from.list("num_pages", limits.num_pages));
  TRY(from.list("prefill_sizes", limits.prefill_sizes));
  TRY(from.list("decode_sizes", limits.decode_sizes));
  TRY(from.list("vision_sizes", limits.vision_sizes));
  limits.max_running = TRY(from.word("max_running"));
  TRY(from.finish());
  return limits;
}

void pack_images(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows, MessageWriter& to) {
  to.list(first_rows);
  for (const Patches* image : images) {
    to.word(image->grid.t);
    to.word(image->grid.h);
    to.word(image->grid.w);
    to.word(image->merge_size);
    to.word(image->patch_values);
    to.number(image->content.high);
    to.number(image->content.low);
    to.list(image->values);
  }
}

Result<ReceivedImages> unpack_images(MessageReader& from) {
  ReceivedImages received;
  TRY(from.list("first_rows", received.first_rows));
  for (std::size_t i = 0; i < received.first_rows.size(); ++i) {
    Patches& image = received.images.emplace_back();
    image.grid.t = static_cast<std::int32_t>(TRY(from.choice("grid", INT32_MAX)));
    image.grid.h = static_cast<std::int32_t>(TRY(from.choice("grid", INT32_MAX)));
    image.grid.w = static_cast<std::int32_t>(TRY(from.choice("grid", INT32_MAX)));
    image.merge_size = static_cast<std::int32_t>(TRY(from.choice("merge_size", INT32_MAX)));
    image.patch_values = TRY(from.choice("patch_values", INT32_MAX));
    image.content.high = TRY(from.number("content"));
    image.content.low = TRY(from.number("content"));
    TRY(from.list("values", image.values));
  }
  TRY(from.finish());
  return received;
}

void pack_memory(const MemoryReport& report, MessageWriter& to) {
  std::vector<std::int64_t> uses;
  std::vector<std::int64_t> bytes;
  for (const auto& [use, taken] : report.entries()) {
    uses.push_back(static_cast<std::int64_t>(use));
    bytes.push_back(taken);
  }
  to.list(uses);
  to.list(bytes);
  to.word(report.available);
}

Result<MemoryReport> unpack_memory(MessageReader& from) {
  std::vector<std::int64_t> uses;
  std::vector<std::int64_t> bytes;
  TRY(from.list("uses", uses));
  TRY(from.list("bytes", bytes));
  if (uses.size() != bytes.size())
    return data_loss(fmt::format("{} uses of memory with {} numbers of bytes", uses.size(), bytes.size()));
  MemoryReport report;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (uses[i] < 0 || uses[i] >= kNumMemoryUses)
      return data_loss(fmt::format("use {} of memory; 0 to {} is accepted", uses[i], kNumMemoryUses - 1));
    report.set(static_cast<MemoryUse>(uses[i]), bytes[i]);
  }
  report.available = TRY(from.word("available"));
  TRY(from.finish());
  return report;
}

}  // namespace tessera
