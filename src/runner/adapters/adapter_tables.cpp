#include "tessera/runner/adapters/adapter_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/device/alignment.h"
#include "tessera/ir/storage_type.h"

namespace tessera {

AdapterTables::AdapterTables(const AdapterLayout& layout, Places places, std::unique_ptr<Allocation> memory)
    : layout_(layout),
      places_(std::move(places)),
      memory_(std::move(memory)),
      numbers_(places_.bytes - places_.numbers) {}

// Places the matrices of all linears first. The ranks and scales of all linears follow without gaps, so one copy can
// upload all of them.
Result<AdapterTables::Places> AdapterTables::places_of(const AdapterLayout& layout) {
  Places places;
  const auto take = [&](AdapterTable first, AdapterTable second) -> Status {
    for (std::size_t i = 0; i < layout.linears().size(); ++i)
      for (const AdapterTable table : adapter_tables(layout.linears()[i])) {
        if (table != first && table != second) continue;
        places.linears[i][index_of(table)] = places.bytes;
        const ir::Type type = adapter_type(layout, layout.linears()[i], table);
        places.bytes += static_cast<std::size_t>(align_up(TRY(ir::size_bytes(type, {}))));
      }
    return ok_status();
  };
  places.linears.resize(layout.linears().size());
  TRY(take(AdapterTable::kA, AdapterTable::kB));
  places.numbers = places.bytes;
  TRY(take(AdapterTable::kRanks, AdapterTable::kScales));
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
    for (const AdapterTable table : adapter_tables(linear))
      externals.add(adapter_input(linear, table), memory_->data() + places_.linears[i][index_of(table)]);
  }
}

Status AdapterTables::fill_at_random(Stream& stream) {
  // The matrices can take gigabytes, so one block of random numbers is copied to all of them.
  constexpr std::size_t kBlock = std::size_t{1} << 24;
  std::vector<std::byte> block(std::min(places_.numbers, kBlock));
  std::uint32_t random = 2463534242U;
  TRY(dispatch_dtype(layout_.dtype(), "adapters", [&]<class T>() -> Status {
    for (std::size_t at = 0; at + sizeof(T) <= block.size(); at += sizeof(T)) {
      random = random * 1664525U + 1013904223U;
      const T value = from_float<T>((static_cast<float>(random >> 8) / static_cast<float>(1U << 24) - 0.5F) / 8);
      std::memcpy(block.data() + at, &value, sizeof(T));
    }
    return ok_status();
  }));
  for (std::size_t at = 0; at < places_.numbers; at += block.size())
    TRY(stream.upload(memory_->data() + at, block.data(), std::min(block.size(), places_.numbers - at)));
  for (std::size_t i = 0; i < places_.linears.size(); ++i) {
    const AdaptableLinear& linear = layout_.linears()[i];
    const std::size_t entries = static_cast<std::size_t>(num_slots()) * linear.modules.size();
    const auto fill = [&](AdapterTable table, auto value) {
      for (std::size_t entry = 0; entry < entries; ++entry)
        std::memcpy(numbers_.data() + (places_.linears[i][index_of(table)] - places_.numbers) + entry * sizeof(value),
                    &value, sizeof(value));
    };
    fill(AdapterTable::kRanks, static_cast<std::int32_t>(layout_.rows_of_a(linear)));
    if (!linear.whole) fill(AdapterTable::kScales, 1.0F);
  }
  return stream.upload(memory_->data() + places_.numbers, numbers_.data(), numbers_.size());
}

Status AdapterTables::write(std::int64_t slot, const AdapterShare& share, Stream& stream) {
  if (slot < 0 || slot >= num_slots())
    return internal_error(fmt::format("slot {} of adapters; there are {}", slot, num_slots()));
  const std::size_t element = ir::dtype_size(layout_.dtype());
  for (std::size_t i = 0; i < places_.linears.size(); ++i) {
    const AdaptableLinear& linear = layout_.linears()[i];
    const AdapterLinearPart& part = share.linears()[i];
    const auto at = static_cast<std::size_t>(slot);
    const auto place = [&](AdapterTable table) { return places_.linears[i][index_of(table)]; };
    const std::size_t modules = linear.modules.size();
    const auto write_numbers = [&](AdapterTable table, const auto& numbers) {
      const std::size_t bytes = modules * sizeof(numbers[0]);
      std::memcpy(numbers_.data() + (place(table) - places_.numbers) + at * bytes, numbers.data(), bytes);
    };
    write_numbers(AdapterTable::kRanks, part.ranks);
    if (!linear.whole) write_numbers(AdapterTable::kScales, part.scales);
    const std::size_t row = static_cast<std::size_t>(linear.cols) * element;
    const std::size_t module_bytes = static_cast<std::size_t>(layout_.rows_of_a(linear)) * row;
    const std::byte* from = share.bytes().data() + part.a_offset;
    for (std::size_t m = 0; m < modules; ++m) {
      const std::size_t bytes = static_cast<std::size_t>(part.ranks[m]) * row;
      if (bytes > 0)
        TRY(stream.upload(memory_->data() + place(AdapterTable::kA) + (at * modules + m) * module_bytes, from, bytes));
      from += bytes;
    }
    if (part.most_rank == 0 || linear.whole) continue;
    const std::size_t width = static_cast<std::size_t>(linear.rows()) * element;
    const std::size_t slot_bytes = static_cast<std::size_t>(layout_.limits().max_rank) * width;
    TRY(stream.upload(memory_->data() + place(AdapterTable::kB) + at * slot_bytes, share.bytes().data() + part.b_offset,
                      static_cast<std::size_t>(part.most_rank) * width));
  }
  return stream.upload(memory_->data() + places_.numbers, numbers_.data(), numbers_.size());
}

}  // namespace tessera
