// Catches: caches of two layers that overlap; a page with too few bytes or with another group's number of bytes; a slot
// that is only partly copied; and a reserved page with NaNs.
#include "tessera/runner/memory/kv_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tessera/device/testing/fake_device.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::vector<std::int64_t>> page_bytes(const ir::Graph& graph) {
  return KvStorage::page_bytes(std::array{&graph});
}
Result<KvStorage> create(const ir::Graph& graph, const std::vector<std::int64_t>& num_pages, Device& device,
                         Stream& stream) {
  return KvStorage::create(std::array{&graph}, num_pages, device, stream);
}

// Two layers of different widths. Their pages have 3·1·5 and 3·2·8 elements of 2 bytes. These page sizes, 30 and 96
// bytes, are no multiples of the alignment.
ir::Graph two_layers() {
  return *ir::parse_graph(R"(graph @g {
    group "full" paged layers [0, 1]
    state %k_cache.0: bf16[P, 3, 1, 5] state %v_cache.0: bf16[P, 3, 1, 5]
    state %k_cache.1: bf16[P, 3, 2, 8] state %v_cache.1: bf16[P, 3, 2, 8]
    return })",
                          nullptr);
}

// One layer with pages, and one layer with a slot for each sequence. A slot takes (2·5 + 1) · 4 = 44 bytes.
ir::Graph pages_and_slots() {
  return *ir::parse_graph(R"(graph @g {
    group "full" paged layers [0] group "memory" state layers [1]
    state %k_cache.0: bf16[P, 3, 1, 5] state %memory.1: f32[P1, 2, 5] state %sum.1: f32[P1]
    return })",
                          nullptr);
}

TEST(KvStorage, CountsAPageOverItsGroupsLayers) {
  EXPECT_THAT(*page_bytes(two_layers()), ElementsAre(2 * (3 * 5 * 2) + 2 * (3 * 2 * 8 * 2)));
  EXPECT_THAT(*page_bytes(pages_and_slots()), ElementsAre(3 * 5 * 2, 2 * 5 * 4 + 4));
}

TEST(KvStorage, AStateWithoutAGroupIsRefused) {
  ir::Graph graph = pages_and_slots();
  graph.cache_groups.pop_back();
  EXPECT_THAT(page_bytes(graph).status().message(),
              HasSubstr("%memory.1 is f32[P1, 2, 5], of none of the graph's 1 cache groups"));
}

TEST(KvStorage, GroupsHaveAsManyPagesAsTheyAreGiven) {
  const std::unique_ptr<FakeDevice> device = FakeDevice::create({}, {.threads = 1}).value();
  const std::unique_ptr<Stream> stream = device->create_stream("test").value();
  const KvStorage storage = create(pages_and_slots(), std::vector<std::int64_t>{100, 3}, *device, *stream).value();
  EXPECT_LE(storage.bytes(), 100 * 30 + 3 * 44 + 3 * static_cast<std::int64_t>(kDeviceAlignment));
  EXPECT_EQ(create(pages_and_slots(), std::vector<std::int64_t>{100}, *device, *stream).status().code(),
            StatusCode::kInternal);
}

TEST(KvStorage, CopiesASlotInItsGroupsStatesOnly) {
  const std::unique_ptr<FakeDevice> device = FakeDevice::create({}, {.threads = 1}).value();
  const std::unique_ptr<Stream> stream = device->create_stream("test").value();
  const KvStorage storage = create(pages_and_slots(), std::vector<std::int64_t>{4, 4}, *device, *stream).value();
  ExternalValues states;
  storage.add_to(states);
  const auto address = [&](const std::string& name) { return states.find(name, {}); };
  const std::map<std::string, std::size_t> bytes{{"k_cache.0", 30}, {"memory.1", 40}, {"sum.1", 4}};
  const auto content = [&](const std::string& name, std::size_t slot) {
    std::vector<std::byte> read(bytes.at(name));
    EXPECT_TRUE(stream->download(read.data(), address(name) + slot * read.size(), read.size()).ok());
    return read;
  };
  for (const auto& [name, size] : bytes) ASSERT_TRUE(stream->fill(address(name) + 2 * size, 7, size).ok());
  for (const auto& [name, size] : bytes) ASSERT_TRUE(stream->fill(address(name) + 3 * size, 1, size).ok());
  ASSERT_TRUE(storage.copy({.group = 1, .from = PageId(2), .to = PageId(3)}, *stream).ok());
  EXPECT_THAT(content("memory.1", 3), Each(std::byte{7}));
  EXPECT_THAT(content("sum.1", 3), Each(std::byte{7}));
  EXPECT_THAT(content("memory.1", 2), Each(std::byte{7}));
  EXPECT_THAT(content("k_cache.0", 3), Each(std::byte{1})) << "of another group";
}

// Three layers with two states each, and another group's states between them.
TEST(KvStorage, CopiesASlotOfEveryLayer) {
  const ir::Graph graph = *ir::parse_graph(R"(graph @g {
    group "full" paged layers [1] group "memory" state layers [0, 2, 3]
    state %sum.0: f32[P1] state %memory.0: f32[P1, 2, 5]
    state %k_cache.1: bf16[P, 3, 1, 5]
    state %sum.2: f32[P1] state %memory.2: f32[P1, 2, 5]
    state %sum.3: f32[P1] state %memory.3: f32[P1, 2, 5]
    return })",
                                           nullptr);
  const std::unique_ptr<FakeDevice> device = FakeDevice::create({}, {.threads = 1}).value();
  const std::unique_ptr<Stream> stream = device->create_stream("test").value();
  const KvStorage storage = create(graph, std::vector<std::int64_t>{4, 4}, *device, *stream).value();
  ExternalValues states;
  storage.add_to(states);
  // Numbers every byte of every state by its state and slot, and copies slot 1 to slot 3.
  std::map<std::string, std::vector<std::uint8_t>> expected;
  for (const std::string name : {"sum.0", "sum.2", "sum.3", "memory.0", "memory.2", "memory.3", "k_cache.1"}) {
    const std::size_t bytes = name.starts_with("sum") ? 4 : name.starts_with("memory") ? 40 : 30;
    std::vector<std::uint8_t>& values = expected[name];
    for (std::size_t i = 0; i < 4 * bytes; ++i)
      values.push_back(static_cast<std::uint8_t>(10 * expected.size() + i / bytes));
    ASSERT_TRUE(stream->upload(states.find(name, {}), values.data(), values.size()).ok());
    if (name != "k_cache.1") std::copy_n(values.begin() + bytes, bytes, values.begin() + 3 * bytes);
  }
  ASSERT_TRUE(storage.copy({.group = 1, .from = PageId(1), .to = PageId(3)}, *stream).ok());
  for (const auto& [name, values] : expected) {
    std::vector<std::uint8_t> read(values.size());
    ASSERT_TRUE(stream->download(read.data(), states.find(name, {}), read.size()).ok());
    EXPECT_EQ(read, values) << name;
  }
}

TEST(KvStorage, StatesAreAlignedDisjointAndBeginWithZeros) {
  const std::unique_ptr<FakeDevice> device = FakeDevice::create({}, {.threads = 1}).value();
  const std::unique_ptr<Stream> stream = device->create_stream("test").value();
  const KvStorage storage = create(two_layers(), std::vector<std::int64_t>{7}, *device, *stream).value();
  EXPECT_THAT(storage.num_pages(), ElementsAre(7));
  ExternalValues externals;
  storage.add_to(externals);
  std::map<std::string, DeviceAddress> states;
  for (const std::string name : {"k_cache.0", "k_cache.1", "v_cache.0", "v_cache.1"}) {
    states[name] = externals.find(name, {});
    ASSERT_TRUE(states[name]) << name;
  }

  // The range [begin, end) of each state. A state has 7 pages. A page has 30 bytes in layer 0, and 96 bytes in layer 1.
  std::vector<std::pair<DeviceAddress, DeviceAddress>> ranges;
  for (const auto& [name, begin] : states) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(begin.raw()) % kDeviceAlignment, 0u) << name;
    ranges.emplace_back(begin, begin + 7 * (name.ends_with("0") ? 30 : 96));
  }
  std::sort(ranges.begin(), ranges.end());
  EXPECT_GE(ranges.front().first, storage.data());
  EXPECT_LE(ranges.back().second, storage.data() + storage.bytes());
  for (std::size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);

  for (const auto& [name, begin] : states) {
    std::vector<std::byte> page(name.ends_with("0") ? 30 : 96, std::byte{1});
    ASSERT_TRUE(stream->download(page.data(), begin, page.size()).ok());
    EXPECT_THAT(page, Each(std::byte{0})) << "the reserved page of " << name;
  }
}

TEST(KvStorage, NoMemoryIsAnErrorThatNamesTheCache) {
  const std::unique_ptr<FakeDevice> device = FakeDevice::create({.out_of_memory_at = 1}, {.threads = 1}).value();
  const std::unique_ptr<Stream> stream = device->create_stream("test").value();
  const Result<KvStorage> storage = create(two_layers(), std::vector<std::int64_t>{7}, *device, *stream);
  EXPECT_EQ(storage.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(storage.status().message(), HasSubstr("KV cache"));
}

}  // namespace
}  // namespace tessera
