// Conformance tests of copies (host to device, device to host, within the device), their order, and events.
#include <algorithm>
#include <cstring>

#include "tessera/device/testing/conformance.h"

namespace tessera {

// Bug caught: a copy that loses its last bytes, or that confuses bytes with elements.
TEST_P(DeviceConformance, TransfersRoundTrip) {
  for (const std::size_t bytes : {1ul, 7ul, 4096ul, 100003ul, 3ul << 20, (9ul << 20) + 5}) {
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

// Bug caught: a copy that confuses source and destination; and a fill that writes past its end.
TEST_P(DeviceConformance, CopyAndFillStayInTheirRange) {
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

// Bug caught: rows that are copied by the wrong distance, and bytes between rows that are overwritten.
TEST_P(DeviceConformance, CopyOfRowsLeavesGapsAlone) {
  struct Case {
    std::size_t bytes;
    std::size_t pitch;
  };
  constexpr std::size_t kMostPitch = (1 << 20) + 256;
  std::unique_ptr<Allocation> memory = allocate(5 * kMostPitch);
  ASSERT_NE(memory, nullptr);
  for (const auto& [bytes, pitch] : {Case{1, 4096}, {36, 4096}, {1024, 4096}, {1024, 4352}, {36, kMostPitch}}) {
    std::vector<std::uint8_t> expected = pattern(5 * pitch, 3);
    write(memory->data(), expected);
    expect_ok(stream_->copy_rows(memory->data() + 2048, memory->data() + 16, bytes, pitch, 4));
    for (std::size_t row = 0; row < 4; ++row)
      std::copy_n(expected.begin() + row * pitch + 16, bytes, expected.begin() + row * pitch + 2048);
    EXPECT_EQ(read(memory->data(), expected.size()), expected) << bytes << " bytes of " << pitch;
  }
  expect_ok(stream_->copy_rows(memory->data(), memory->data() + 16, 8, kMostPitch, 0));
  EXPECT_EQ(read(memory->data(), 8), pattern(8, 3));
  EXPECT_EQ(stream_->copy_rows({}, memory->data(), 8, kMostPitch, 2).code(), StatusCode::kInvalidArgument);
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

// Bug caught: a second stream or a host that waits for an event but reads before the first stream has written.
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

// Bug caught: an endless wait for an event that was never recorded.
TEST_P(DeviceConformance, UnrecordedEventHasPassed) {
  std::unique_ptr<Event> event = device_->create_event().value();
  expect_ok(event->synchronize());
  expect_ok(stream_->wait(*event));
  expect_ok(stream_->synchronize());
}

// Bug caught: a time that was not measured, or that comes from an earlier recording of the event.
TEST_P(DeviceConformance, EventsTakeTime) {
  std::unique_ptr<Allocation> memory = allocate(32 << 20);
  std::unique_ptr<Event> begin = device_->create_event(EventKind::kTime).value();
  std::unique_ptr<Event> end = device_->create_event(EventKind::kTime).value();
  std::unique_ptr<Event> order = device_->create_event().value();
  ASSERT_NE(memory, nullptr);
  expect_refused(end->milliseconds_since(*begin).status(), {"event"});
  expect_ok(stream_->record(*begin));
  expect_refused(end->milliseconds_since(*begin).status(), {"event"});
  expect_ok(stream_->fill(memory->data(), 1, memory->size()));
  expect_ok(stream_->record(*end));
  expect_ok(stream_->record(*order));
  expect_ok(stream_->synchronize());
  const Result<double> milliseconds = end->milliseconds_since(*begin);
  ASSERT_TRUE(milliseconds.ok()) << milliseconds.status().message();
  EXPECT_GT(*milliseconds, 0);
  EXPECT_LT(*milliseconds, 10000);
  expect_refused(order->milliseconds_since(*begin).status(), {"event"});
}

// Bug caught: a null address that crashes the process instead of failing the call.
TEST_P(DeviceConformance, NullAddressesAreRefused) {
  std::unique_ptr<Allocation> memory = allocate(16);
  ASSERT_NE(memory, nullptr);
  std::uint8_t host = 0;
  EXPECT_EQ(stream_->upload({}, &host, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->upload(memory->data(), nullptr, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->download(nullptr, memory->data(), 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->download(&host, {}, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->copy(memory->data(), {}, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->fill({}, 0, 1).code(), StatusCode::kInvalidArgument);
}

// Bug caught: an upload that reads its source too late, after the caller has overwritten it.
TEST_P(DeviceConformance, UploadHasReadHostMemoryWhenItReturns) {
  std::vector<std::unique_ptr<Allocation>> memory;
  const std::vector<std::size_t> sizes{4, 100, 4096, 250001, 1 << 20, (6 << 20) + 3};
  std::unique_ptr<Allocation> busy = allocate(64 << 20);
  ASSERT_NE(busy, nullptr);
  for (const std::size_t bytes : sizes) {
    for (int i = 0; i < 8; ++i) memory.push_back(allocate(bytes));
  }
  std::vector<std::uint8_t> host(sizes.back());
  for (std::size_t i = 0; i < memory.size(); ++i) {
    ASSERT_NE(memory[i], nullptr);
    // Keeps the stream busy, so that uploads run later than the host's calls.
    expect_ok(stream_->fill(busy->data(), 1, busy->size()));
    const std::vector<std::uint8_t> values = pattern(memory[i]->size(), static_cast<unsigned>(i));
    std::copy(values.begin(), values.end(), host.begin());
    expect_ok(stream_->upload(memory[i]->data(), host.data(), values.size()));
    std::fill(host.begin(), host.end(), std::uint8_t{0xCC});
  }
  for (std::size_t i = 0; i < memory.size(); ++i) {
    EXPECT_EQ(read(memory[i]->data(), memory[i]->size()), pattern(memory[i]->size(), static_cast<unsigned>(i))) << i;
  }
}

// Bug caught: transfers of pinned memory that go to the wrong place, or that an event does not wait for.
TEST_P(DeviceConformance, HostMemoryTransfersWhileTheStreamRuns) {
  const std::size_t bytes = (5 << 20) + 11;
  std::unique_ptr<HostAllocation> from = allocate_host(bytes, "from");
  std::unique_ptr<HostAllocation> to = allocate_host(bytes, "to");
  std::unique_ptr<Allocation> memory = allocate(bytes);
  std::unique_ptr<Event> done = device_->create_event().value();
  ASSERT_TRUE(from != nullptr && to != nullptr && memory != nullptr);
  for (unsigned i = 0; i < 5; ++i) {
    const std::vector<std::uint8_t> values = pattern(bytes, i);
    std::memcpy(from->data(), values.data(), bytes);
    std::memset(to->data(), 0, bytes);
    // Uploads in two parts that meet at an odd offset.
    expect_ok(stream_->upload(memory->data(), from->data(), 1001));
    expect_ok(stream_->upload(memory->data() + 1001, from->data() + 1001, bytes - 1001));
    expect_ok(stream_->download(to->data() + 77, memory->data() + 77, bytes - 77));
    expect_ok(stream_->download(to->data(), memory->data(), 77));
    expect_ok(stream_->record(*done));
    expect_ok(done->synchronize());
    EXPECT_EQ(content(*to), values);
  }
}

// Bug caught: ordinary memory that is treated as pinned memory, because it lies next to pinned memory or has the
// address of freed pinned memory.
TEST_P(DeviceConformance, HostMemoryIsKnownByItsRange) {
  std::unique_ptr<Allocation> memory = allocate(4096);
  ASSERT_NE(memory, nullptr);
  for (unsigned i = 0; i < 20; ++i) {
    std::unique_ptr<HostAllocation> pinned = allocate_host(4096);
    ASSERT_NE(pinned, nullptr);
    pinned.reset();
    std::vector<std::uint8_t> host = pattern(4096, i);
    expect_ok(stream_->upload(memory->data(), host.data(), host.size()));
    std::fill(host.begin(), host.end(), std::uint8_t{0});
    EXPECT_EQ(read(memory->data(), 4096), pattern(4096, i));
  }
}

}  // namespace tessera
