// Catches: caches of two layers that overlap, a page that is counted too small, and a reserved page that holds NaN.
#include "tessera/runner/kv_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tessera/device/testing/fake_device.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Two layers of different widths: pages of 3·1·5 and 3·2·8 elements of 2 bytes, neither a multiple of the alignment.
ir::Graph two_layers() {
  return *ir::parse_graph(R"(graph @g {
    state %k_cache.0: bf16[P, 3, 1, 5] state %v_cache.0: bf16[P, 3, 1, 5]
    state %k_cache.1: bf16[P, 3, 2, 8] state %v_cache.1: bf16[P, 3, 2, 8]
    return })",
                          nullptr);
}

TEST(KvStorage, APageIsCountedOverAllLayers) {
  EXPECT_EQ(*KvStorage::bytes_per_page(two_layers()), 2 * (3 * 5 * 2) + 2 * (3 * 2 * 8 * 2));
}

TEST(KvStorage, EveryStateHasAnAlignedRangeOfItsOwnAndAZeroedReservedPage) {
  const std::unique_ptr<FakeDevice> device = FakeDevice::create({}, {.threads = 1}).value();
  const std::unique_ptr<Stream> stream = device->create_stream("test").value();
  const KvStorage storage = KvStorage::create(two_layers(), 7, *device, *stream).value();
  EXPECT_EQ(storage.num_pages(), 7);
  ExternalValues externals;
  storage.add_to(externals);
  std::map<std::string, std::byte*> states;
  for (const std::string name : {"k_cache.0", "k_cache.1", "v_cache.0", "v_cache.1"}) {
    states[name] = externals.find(name, {});
    ASSERT_NE(states[name], nullptr) << name;
  }

  // [begin, end) of each; 7 pages of 30 and of 96 bytes.
  std::vector<std::pair<std::byte*, std::byte*>> ranges;
  for (const auto& [name, begin] : states) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(begin) % kDeviceAlignment, 0u) << name;
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
  const Result<KvStorage> storage = KvStorage::create(two_layers(), 7, *device, *stream);
  EXPECT_EQ(storage.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(storage.status().message(), HasSubstr("KV cache"));
}

}  // namespace
}  // namespace tessera
