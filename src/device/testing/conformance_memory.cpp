// Conformance tests of memory and arenas.
#include <cstring>

#include "tessera/device/testing/conformance.h"

namespace tessera {

// Bug caught: an address whose alignment does not suffice for vector loads or TMA, after allocations of some sizes.
TEST_P(DeviceConformance, AddressesAreAligned) {
  std::vector<std::unique_ptr<Allocation>> held;
  for (const std::size_t bytes :
       {1ul, 3ul, 255ul, 256ul, 257ul, 4097ul, (1ul << 20) - 1, 1ul << 20, (5ul << 20) + 13}) {
    std::unique_ptr<Allocation> memory = allocate(bytes);
    ASSERT_NE(memory, nullptr);
    expect_aligned(memory->data());
    EXPECT_EQ(memory->size(), bytes);
    held.push_back(std::move(memory));
  }
  std::unique_ptr<Arena> arena = create_arena(1 << 20);
  ASSERT_NE(arena, nullptr);
  expect_aligned(arena->base());
}

// Bug caught: two live allocations that share bytes, or an allocation whose last bytes are used for something else.
TEST_P(DeviceConformance, AllocationsAreDisjoint) {
  std::vector<std::unique_ptr<Allocation>> held;
  for (unsigned i = 0; i < 16; ++i) {
    held.push_back(allocate(1000 + i * 70001));
    ASSERT_NE(held.back(), nullptr);
    write(held.back()->data(), pattern(held.back()->size(), i));
  }
  for (unsigned i = 0; i < 16; ++i) {
    EXPECT_EQ(read(held[i]->data(), held[i]->size()), pattern(held[i]->size(), i)) << i;
  }
}

// Bug caught: an out-of-memory error for an empty tensor. A model may have no layers of some kind.
TEST_P(DeviceConformance, ZeroBytesAreFine) {
  std::unique_ptr<Allocation> memory = allocate(0);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory->size(), 0u);
  expect_ok(stream_->upload(memory->data(), nullptr, 0));
  expect_ok(stream_->copy(memory->data(), memory->data(), 0));
  expect_ok(stream_->fill(memory->data(), 1, 0));
  expect_ok(stream_->download(nullptr, memory->data(), 0));
  expect_ok(stream_->synchronize());
}

// Bug caught: host memory whose alignment does not suffice for vector loads or a copy engine, or an out-of-memory error
// for an empty batch.
TEST_P(DeviceConformance, HostMemoryIsAlignedAndMayBeEmpty) {
  for (const std::size_t bytes : {0ul, 1ul, 300ul, 4097ul, (3ul << 20) + 1, (9ul << 20) + 1}) {
    std::unique_ptr<HostAllocation> memory = allocate_host(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(memory->size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % kDeviceAlignment, 0u) << bytes;
    if (bytes > 0) std::memset(memory->data(), 0x5A, bytes);
  }
}

// Bug caught: an impossible size that is accepted because memory is overcommitted or a sum overflows.
TEST_P(DeviceConformance, AbsurdSizesAreRefusedByName) {
  const auto beyond = static_cast<std::size_t>(device_->properties().memory_bytes) + 1;
  for (const std::size_t bytes : {beyond, std::size_t{1} << 50, std::size_t{1} << 62, SIZE_MAX - 100, SIZE_MAX}) {
    const Result<std::unique_ptr<Allocation>> memory = device_->allocate(bytes, "the weights");
    ASSERT_FALSE(memory.ok()) << bytes;
    EXPECT_EQ(memory.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(memory.status().message(), testing::HasSubstr("the weights"));
    EXPECT_THAT(memory.status().message(), testing::HasSubstr(std::to_string(bytes)));
    EXPECT_THAT(memory.status().message(), testing::HasSubstr("available"));
  }
  for (const std::size_t bytes : {std::size_t{1} << 50, SIZE_MAX - 100, SIZE_MAX}) {
    const Result<std::unique_ptr<HostAllocation>> memory = device_->allocate_host(bytes, "the batch");
    ASSERT_FALSE(memory.ok()) << bytes;
    EXPECT_EQ(memory.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(memory.status().message(), testing::HasSubstr("the batch"));
    EXPECT_THAT(memory.status().message(), testing::HasSubstr(std::to_string(bytes)));
  }
  EXPECT_NE(allocate(1 << 20), nullptr) << "the device works on after a refusal";
}

// Bug caught: allocations that succeed although together they exceed the memory; and memory that is not returned when
// freed.
TEST_P(DeviceConformance, MemoryIsBoundedInAllAndGivenBack) {
  const auto third = static_cast<std::size_t>(device_->properties().memory_bytes) / 3 + 4096;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Allocation>> held;
    while (held.size() < 4) {
      Result<std::unique_ptr<Allocation>> memory = device_->allocate(third, "a third");
      if (!memory.ok()) break;
      held.push_back(std::move(memory).value());
    }
    EXPECT_LT(held.size(), 3u);
    held.clear();
    std::unique_ptr<Arena> arena = create_arena(third);
    ASSERT_NE(arena, nullptr);
    expect_ok(arena->grow(third));
  }
  EXPECT_NE(allocate(1 << 20), nullptr);
}

// Bug caught: an arena that loses its content when it grows, or that moves. A move would invalidate recorded addresses.
TEST_P(DeviceConformance, ArenaGrowsInPlace) {
  std::unique_ptr<Arena> arena = create_arena(64 << 20);
  ASSERT_NE(arena, nullptr);
  EXPECT_EQ(arena->size(), size_at_first(*arena));
  EXPECT_GE(arena->reserved(), std::size_t{64} << 20);
  const DeviceAddress base = arena->base();
  ASSERT_TRUE(arena->grow(1000).ok());
  ASSERT_GE(arena->size(), 1000u);
  write(base, pattern(1000, 1));
  for (const std::size_t bytes : {4097ul, 1ul << 20, (33ul << 20) + 5, 64ul << 20}) {
    ASSERT_TRUE(arena->grow(bytes).ok()) << bytes;
    EXPECT_EQ(arena->base(), base);
    ASSERT_GE(arena->size(), bytes);
    write(base + (bytes - 100), pattern(100, 2));
    EXPECT_EQ(read(base + (bytes - 100), 100), pattern(100, 2));
    EXPECT_EQ(read(base, 1000), pattern(1000, 1));
  }
  const std::size_t size = arena->size();
  expect_ok(arena->grow(10));
  EXPECT_EQ(arena->size(), size) << "an arena never shrinks";
}

// Bug caught: growth past the reserved addresses into other memory, and a failed growth that changes the arena.
TEST_P(DeviceConformance, ArenaStopsAtItsReserve) {
  std::unique_ptr<Arena> arena = create_arena(1 << 20, "scratch");
  ASSERT_NE(arena, nullptr);
  ASSERT_TRUE(arena->grow(100).ok());
  const std::size_t size = arena->size();
  for (const std::size_t bytes : {arena->reserved() + 1, std::size_t{1} << 62, SIZE_MAX}) {
    const Status status = arena->grow(bytes);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), testing::HasSubstr("scratch"));
    EXPECT_EQ(arena->size(), size);
  }
  expect_ok(arena->grow(arena->reserved()));
}

// Bug caught: an arena whose reserved addresses count as memory, so that a large reservation is refused; and an arena
// that grows without counting as memory.
TEST_P(DeviceConformance, ArenaTakesMemoryOnlyByGrowing) {
  const auto memory = static_cast<std::size_t>(device_->properties().memory_bytes);
  if (!device_->properties().arenas_grow) {
    const Status refused = device_->create_arena({.reserve_bytes = 2 * memory, .name = "huge"}).status();
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.message(), testing::HasSubstr("huge"));
    return;
  }
  std::unique_ptr<Arena> arena = create_arena(2 * memory, "huge");
  ASSERT_NE(arena, nullptr);
  const Status status = arena->grow(memory + (1 << 20));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), testing::HasSubstr("huge"));
  expect_ok(arena->grow(4096));
}

// Bug caught: an absurd reservation whose size overflows to a small one.
TEST_P(DeviceConformance, AbsurdArenaIsRefused) {
  for (const std::size_t bytes : {std::size_t{1} << 62, SIZE_MAX - 5, SIZE_MAX}) {
    const Result<std::unique_ptr<Arena>> arena = device_->create_arena({.reserve_bytes = bytes, .name = "endless"});
    ASSERT_FALSE(arena.ok()) << bytes;
    EXPECT_EQ(arena.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(arena.status().message(), testing::HasSubstr("endless"));
  }
}

// Bug caught: an arena with the option single_handle that moves, loses its content or has the wrong size, and a CPU
// device that refuses the option.
TEST_P(DeviceConformance, SingleHandleArenaIsAnArena) {
  Result<std::unique_ptr<Arena>> created =
      device_->create_arena({.reserve_bytes = 5 << 20, .name = "exchange", .single_handle = true});
  ASSERT_TRUE(created.ok()) << created.status().message();
  const std::unique_ptr<Arena> arena = std::move(created).value();
  EXPECT_EQ(arena->size(), size_at_first(*arena));
  ASSERT_TRUE(arena->grow(1000).ok());
  const DeviceAddress base = arena->base();
  write(base, pattern(1000, 1));
  ASSERT_TRUE(arena->grow(arena->reserved()).ok());
  EXPECT_EQ(arena->size(), arena->reserved());
  EXPECT_EQ(arena->base(), base);
  EXPECT_EQ(read(base, 1000), pattern(1000, 1));
}

}  // namespace tessera
