// Memory, copies, arenas, order and events.
#include <algorithm>

#include "tessera/device/testing/conformance.h"

namespace tessera {

// Bug caught: an address that vector loads or TMA refuse, for some sizes only.
TEST_P(DeviceConformance, AddressesAreAligned) {
  std::vector<std::unique_ptr<Allocation>> held;
  for (const std::size_t bytes :
       {1ul, 3ul, 255ul, 256ul, 257ul, 4097ul, (1ul << 20) - 1, 1ul << 20, (5ul << 20) + 13}) {
    std::unique_ptr<Allocation> memory = allocate(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % kDeviceAlignment, 0u) << bytes;
    EXPECT_EQ(memory->size(), bytes);
    held.push_back(std::move(memory));
  }
  std::unique_ptr<Arena> arena = create_arena(1 << 20);
  ASSERT_NE(arena, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->base()) % kDeviceAlignment, 0u);
}

// Bug caught: two live allocations that share bytes, or whose last bytes are not theirs.
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

// Bug caught: an empty tensor (no layers of a kind, no vision rows) taken for out of memory.
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

// Bug caught: an impossible size that passes because memory is overcommitted, or that overflows on the way.
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
  EXPECT_NE(allocate(1 << 20), nullptr) << "the device works on after a refusal";
}

// Bug caught: many allocations that together exceed the memory, each of which fits; and memory not given back.
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

// Bug caught: a copy that loses the tail, or a byte count taken for an element count.
TEST_P(DeviceConformance, TransfersRoundTrip) {
  for (const std::size_t bytes : {1ul, 7ul, 4096ul, 100003ul, 3ul << 20}) {
    std::unique_ptr<Allocation> memory = allocate(bytes + 2);
    ASSERT_NE(memory, nullptr);
    write(memory->data(), std::vector<std::uint8_t>(bytes + 2, 0xAB));
    write(memory->data() + 1, pattern(bytes, 5));
    std::vector<std::uint8_t> expected = pattern(bytes, 5);
    expected.insert(expected.begin(), 0xAB);
    expected.push_back(0xAB);
    EXPECT_EQ(read(memory->data(), bytes + 2), expected) << bytes;
  }
}

// Bug caught: source and destination exchanged, and a fill that passes its end.
TEST_P(DeviceConformance, CopyAndFillTouchWhatTheySay) {
  std::unique_ptr<Allocation> from = allocate(64);
  std::unique_ptr<Allocation> to = allocate(64);
  ASSERT_TRUE(from != nullptr && to != nullptr);
  const std::vector<std::uint8_t> values = pattern(64, 1);
  write(from->data(), values);
  expect_ok(stream_->fill(to->data(), 0x11, 64));
  expect_ok(stream_->copy(to->data() + 8, from->data() + 16, 24));
  expect_ok(stream_->fill(to->data() + 40, 0x7F, 3));
  std::vector<std::uint8_t> expected(64, 0x11);
  std::copy_n(values.begin() + 16, 24, expected.begin() + 8);
  std::fill_n(expected.begin() + 40, 3, std::uint8_t{0x7F});
  EXPECT_EQ(read(to->data(), 64), expected);
  EXPECT_EQ(read(from->data(), 64), values);
}

// Bug caught: an arena that moves when it grows, so that recorded addresses point nowhere, or that loses content.
TEST_P(DeviceConformance, ArenaGrowsInPlace) {
  std::unique_ptr<Arena> arena = create_arena(64 << 20);
  ASSERT_NE(arena, nullptr);
  EXPECT_EQ(arena->size(), 0u);
  EXPECT_GE(arena->reserved(), std::size_t{64} << 20);
  std::byte* const base = arena->base();
  ASSERT_TRUE(arena->grow(1000).ok());
  ASSERT_GE(arena->size(), 1000u);
  write(base, pattern(1000, 1));
  for (const std::size_t bytes : {4097ul, 1ul << 20, (33ul << 20) + 5, 64ul << 20}) {
    ASSERT_TRUE(arena->grow(bytes).ok()) << bytes;
    EXPECT_EQ(arena->base(), base);
    ASSERT_GE(arena->size(), bytes);
    write(base + bytes - 100, pattern(100, 2));
    EXPECT_EQ(read(base + bytes - 100, 100), pattern(100, 2));
    EXPECT_EQ(read(base, 1000), pattern(1000, 1));
  }
  const std::size_t size = arena->size();
  expect_ok(arena->grow(10));
  EXPECT_EQ(arena->size(), size) << "an arena never shrinks";
}

// Bug caught: growth past the reserved addresses, into what belongs to others; and a failed growth that changes the
// arena.
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

// Bug caught: addresses counted as memory (a large reserve refused), or memory of an arena not counted at all.
TEST_P(DeviceConformance, ArenaTakesMemoryOnlyByGrowing) {
  const auto memory = static_cast<std::size_t>(device_->properties().memory_bytes);
  std::unique_ptr<Arena> arena = create_arena(2 * memory, "huge");
  ASSERT_NE(arena, nullptr);
  const Status status = arena->grow(memory + (1 << 20));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), testing::HasSubstr("huge"));
  expect_ok(arena->grow(4096));
}

// Bug caught: an absurd reservation that overflows to a small one.
TEST_P(DeviceConformance, AbsurdArenaIsRefused) {
  for (const std::size_t bytes : {std::size_t{1} << 62, SIZE_MAX - 5, SIZE_MAX}) {
    const Result<std::unique_ptr<Arena>> arena = device_->create_arena({.reserve_bytes = bytes, .name = "endless"});
    ASSERT_FALSE(arena.ok()) << bytes;
    EXPECT_EQ(arena.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(arena.status().message(), testing::HasSubstr("endless"));
  }
}

// Bug caught: work that overtakes what was enqueued before it on the same stream.
TEST_P(DeviceConformance, StreamKeepsOrder) {
  std::unique_ptr<Allocation> memory = allocate(1 << 16);
  ASSERT_NE(memory, nullptr);
  const std::size_t half = 1 << 15;
  for (unsigned i = 0; i < 200; ++i) {
    expect_ok(stream_->fill(memory->data(), static_cast<std::uint8_t>(i), half));
    expect_ok(stream_->copy(memory->data() + half, memory->data(), half));
  }
  EXPECT_EQ(read(memory->data(), 1 << 16), std::vector<std::uint8_t>(1 << 16, 199));
}

// Bug caught: a second stream that reads before the first has written, or a host that does.
TEST_P(DeviceConformance, EventsOrderStreamsAndHost) {
  std::unique_ptr<Allocation> memory = allocate(2 << 20);
  ASSERT_NE(memory, nullptr);
  std::unique_ptr<Stream> second = device_->create_stream("second").value();
  std::unique_ptr<Event> written = device_->create_event().value();
  std::unique_ptr<Event> copied = device_->create_event().value();
  const std::size_t half = 1 << 20;
  for (unsigned i = 1; i < 20; ++i) {
    expect_ok(stream_->fill(memory->data(), static_cast<std::uint8_t>(i), half));
    expect_ok(stream_->record(*written));
    expect_ok(second->wait(*written));
    expect_ok(second->copy(memory->data() + half, memory->data(), half));
    expect_ok(second->record(*copied));
    expect_ok(copied->synchronize());
    EXPECT_EQ(read(memory->data() + half, half), std::vector<std::uint8_t>(half, static_cast<std::uint8_t>(i)));
  }
}

// Bug caught: a wait for an event that nobody recorded, which never ends.
TEST_P(DeviceConformance, UnrecordedEventHasPassed) {
  std::unique_ptr<Event> event = device_->create_event().value();
  expect_ok(event->synchronize());
  expect_ok(stream_->wait(*event));
  expect_ok(stream_->synchronize());
}

// Bug caught: a null address that kills the process instead of the call.
TEST_P(DeviceConformance, NullAddressesAreRefused) {
  std::unique_ptr<Allocation> memory = allocate(16);
  ASSERT_NE(memory, nullptr);
  std::uint8_t host = 0;
  EXPECT_EQ(stream_->upload(nullptr, &host, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->upload(memory->data(), nullptr, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->download(nullptr, memory->data(), 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->copy(memory->data(), nullptr, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->fill(nullptr, 0, 1).code(), StatusCode::kInvalidArgument);
}

}  // namespace tessera
