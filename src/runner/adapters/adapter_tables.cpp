#include "tessera/runner/adapters/adapter_tables.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "tessera/device/alignment.h"
#include "tessera/ir/storage_type.h"
#include "tessera/runner/adapters/adapted_graphs.h"

namespace tessera {

AdapterTables::AdapterTables(const AdapterLayout& layout, Places places, std::unique_ptr<Allocation> memory)
    : layout_(layout),
      places_(std::move(places)),
      memory_(std::move(memory)),
      numbers_(places_.bytes - places_.numbers) {}

// Places the matrices first. The ranks and scales of all linears follow together, so that one copy uploads all of them.
Result<AdapterTables::Places> AdapterTables::places_of(const AdapterLayout& layout) {
  Places places;
  const auto take = [&](const AdaptableLinear& linear, AdapterTable table) -> Result<std::size_t> {
    const std::size_t begin = places.bytes;
    places.bytes += static_cast<std::size_t>(align_up(TRY(ir::size_bytes(adapter_type(layout, linear, table), {}))));
    return begin;
  };
  for (const AdaptableLinear& linear : layout.linears()) {
    Place& place = places.linears.emplace_back();
    place.a = TRY(take(linear, AdapterTable::kA));
    place.b = TRY(take(linear, AdapterTable::kB));
  }
  places.numbers = places.bytes;
  for (std::size_t i = 0; i < places.linears.size(); ++i) {
    places.linears[i].ranks = TRY(take(layout.linears()[i], AdapterTable::kRanks));
    places.linears[i].scales = TRY(take(layout.linears()[i], AdapterTable::kScales));
  }
  return places;
}

Result<std::unique_ptr<AdapterTables>> AdapterTables::create(const AdapterLayout& layout, Device& device,
                                                             Stream& stream) {
  Places places = TRY(places_of(layout));
  std::unique_ptr<Allocation> memory = TRY(device.allocate(places.bytes, "adapters"));
  std::unique_ptr<AdapterTables> tables(new AdapterTables(layout, std::move(places), std::move(memory)));
  TRY(stream.fill(tables->memory_->data(), 0, tables->memory_->size()));
  return tables;
}

Result<std::int64_t> AdapterTables::bytes_needed(const AdapterLayout& layout) {
  return static_cast<std::int64_t>(TRY(places_of(layout)).bytes);
}

void AdapterTables::add_to(ExternalValues& externals) const {
  for (std::size_t i = 0; i < places_.linears.size(); ++i) {
    const AdaptableLinear& linear = layout_.linears()[i];
    const Place& place = places_.linears[i];
    externals.add(adapter_input(linear, AdapterTable::kA), memory_->data() + place.a);
    externals.add(adapter_input(linear, AdapterTable::kB), memory_->data() + place.b);
    externals.add(adapter_input(linear, AdapterTable::kRanks), memory_->data() + place.ranks);
    externals.add(adapter_input(linear, AdapterTable::kScales), memory_->data() + place.scales);
  }
}

Status AdapterTables::fill_at_random(Stream& stream) {
  std::vector<std::byte> content(places_.bytes);
  std::uint32_t random = 2463534242U;
  TRY(dispatch_dtype(layout_.dtype(), "adapters", [&]<class T>() -> Status {
    for (std::size_t at = 0; at + sizeof(T) <= places_.numbers; at += sizeof(T)) {
      random = random * 1664525U + 1013904223U;
      const T value = from_float<T>((static_cast<float>(random >> 8) / static_cast<float>(1U << 24) - 0.5F) / 8);
      std::memcpy(content.data() + at, &value, sizeof(T));
    }
    return ok_status();
  }));
  for (std::size_t i = 0; i < places_.linears.size(); ++i) {
    const std::size_t entries = static_cast<std::size_t>(num_slots()) * layout_.linears()[i].modules.size();
    for (std::size_t entry = 0; entry < entries; ++entry) {
      const auto rank = static_cast<std::int32_t>(layout_.limits().max_rank);
      const float scale = 1;
      std::memcpy(content.data() + places_.linears[i].ranks + entry * sizeof(rank), &rank, sizeof(rank));
      std::memcpy(content.data() + places_.linears[i].scales + entry * sizeof(scale), &scale, sizeof(scale));
    }
  }
  std::memcpy(numbers_.data(), content.data() + places_.numbers, numbers_.size());
  return stream.upload(memory_->data(), content.data(), content.size());
}

Status AdapterTables::write(std::int64_t slot, const AdapterShare& share, Stream& stream) {
  if (slot < 0 || slot >= num_slots())
    return internal_error(fmt::format("slot {} of adapters; there are {}", slot, num_slots()));
  const std::size_t element = ir::dtype_size(layout_.dtype());
  for (std::size_t i = 0; i < places_.linears.size(); ++i) {
    const AdaptableLinear& linear = layout_.linears()[i];
    const AdapterLinearPart& part = share.linears()[i];
    const Place& place = places_.linears[i];
    const auto at = static_cast<std::size_t>(slot);
    const std::size_t modules = linear.modules.size();
    std::memcpy(numbers_.data() + (place.ranks - places_.numbers) + at * modules * sizeof(std::int32_t),
                part.ranks.data(), modules * sizeof(std::int32_t));
    std::memcpy(numbers_.data() + (place.scales - places_.numbers) + at * modules * sizeof(float), part.scales.data(),
                modules * sizeof(float));
    const std::size_t row = static_cast<std::size_t>(linear.cols) * element;
    const std::size_t module_bytes = static_cast<std::size_t>(layout_.limits().max_rank) * row;
    const std::byte* from = share.bytes().data() + part.a_offset;
    for (std::size_t m = 0; m < modules; ++m) {
      const std::size_t bytes = static_cast<std::size_t>(part.ranks[m]) * row;
      if (bytes > 0) TRY(stream.upload(memory_->data() + place.a + (at * modules + m) * module_bytes, from, bytes));
      from += bytes;
    }
    const std::size_t width = static_cast<std::size_t>(linear.rows()) * element;
    if (part.most_rank > 0)
      TRY(stream.upload(memory_->data() + place.b + at * static_cast<std::size_t>(layout_.limits().max_rank) * width,
                        share.bytes().data() + part.b_offset, static_cast<std::size_t>(part.most_rank) * width));
  }
  return stream.upload(memory_->data() + places_.numbers, numbers_.data(), numbers_.size());
}

}  // namespace tessera
