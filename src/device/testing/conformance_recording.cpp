// Conformance tests of recorded graphs.
#include <thread>

#include "tessera/device/testing/conformance.h"

namespace tessera {

// Bug caught: work that runs while it is recorded, or a graph that does nothing when launched.
TEST_P(DeviceConformance, RecordingKeepsWorkForReplay) {
  std::unique_ptr<Allocation> memory = allocate(64);
  ASSERT_NE(memory, nullptr);
  write(memory->data(), std::vector<std::uint8_t>(64, 1));
  EXPECT_FALSE(stream_->recording());
  std::unique_ptr<RecordedGraph> graph = record("piece 0", [&] {
    EXPECT_TRUE(stream_->recording());
    expect_ok(stream_->fill(memory->data(), 2, 32));
    expect_ok(stream_->copy(memory->data() + 32, memory->data(), 32));
  });
  ASSERT_NE(graph, nullptr);
  EXPECT_FALSE(stream_->recording());
  EXPECT_EQ(read(memory->data(), 64), std::vector<std::uint8_t>(64, 1));
  expect_ok(graph->launch(*stream_));
  EXPECT_EQ(read(memory->data(), 64), std::vector<std::uint8_t>(64, 2));
  EXPECT_EQ(graph->stats().nodes, 2);
  EXPECT_GE(graph->stats().bytes, 0);
}

// Bug caught: a recording that keeps contents instead of addresses, so that a replay computes on old inputs.
TEST_P(DeviceConformance, ReplaySeesNewContents) {
  std::unique_ptr<Allocation> from = allocate(1000);
  std::unique_ptr<Allocation> to = allocate(1000);
  ASSERT_TRUE(from != nullptr && to != nullptr);
  std::unique_ptr<RecordedGraph> graph =
      record("copy", [&] { expect_ok(stream_->copy(to->data(), from->data(), 1000)); });
  ASSERT_NE(graph, nullptr);
  for (unsigned i = 0; i < 10; ++i) {
    write(from->data(), pattern(1000, i));
    expect_ok(graph->launch(*stream_));
    EXPECT_EQ(read(to->data(), 1000), pattern(1000, i)) << i;
  }
}

// Bug caught: replays that overtake each other or the work around them. A chain of dependent copies reveals this.
TEST_P(DeviceConformance, ReplaysRunInOrder) {
  const std::size_t cells = 40;
  const std::size_t cell = 512;
  std::unique_ptr<Allocation> memory = allocate(cells * cell);
  ASSERT_NE(memory, nullptr);
  expect_ok(stream_->fill(memory->data(), 0, cells * cell));
  // Each replay moves every cell one place further, starting with the last cell.
  std::unique_ptr<RecordedGraph> graph = record("shift", [&] {
    for (std::size_t i = cells - 1; i > 0; --i) {
      expect_ok(stream_->copy(memory->data() + i * cell, memory->data() + (i - 1) * cell, cell));
    }
  });
  ASSERT_NE(graph, nullptr);
  for (std::size_t step = 0; step < cells; ++step) {
    expect_ok(stream_->fill(memory->data(), static_cast<std::uint8_t>(step + 1), cell));
    expect_ok(graph->launch(*stream_));
  }
  const std::vector<std::uint8_t> values = read(memory->data(), cells * cell);
  for (std::size_t i = 0; i < cells; ++i) {
    EXPECT_EQ(values[i * cell], cells - i + (i == 0 ? 0 : 1)) << "cell " << i;
    EXPECT_EQ(values[i * cell + cell - 1], values[i * cell]);
  }
}

// Bug caught: graphs that share state. Two graphs recorded one after the other must replay correctly in any order.
TEST_P(DeviceConformance, GraphsAreIndependent) {
  std::unique_ptr<Allocation> memory = allocate(16);
  ASSERT_NE(memory, nullptr);
  std::unique_ptr<RecordedGraph> ones = record("ones", [&] { expect_ok(stream_->fill(memory->data(), 1, 16)); });
  std::unique_ptr<RecordedGraph> twos = record("twos", [&] { expect_ok(stream_->fill(memory->data(), 2, 8)); });
  ASSERT_TRUE(ones != nullptr && twos != nullptr);
  expect_ok(twos->launch(*stream_));
  expect_ok(ones->launch(*stream_));
  EXPECT_EQ(read(memory->data(), 16), std::vector<std::uint8_t>(16, 1));
  ones.reset();
  expect_ok(twos->launch(*stream_));
  EXPECT_EQ(read(memory->data(), 8), std::vector<std::uint8_t>(8, 2));
}

// Bug caught: a graph that can be replayed only on the stream that recorded it.
TEST_P(DeviceConformance, GraphReplaysOnAnotherStream) {
  std::unique_ptr<Allocation> memory = allocate(16);
  ASSERT_NE(memory, nullptr);
  std::unique_ptr<RecordedGraph> graph = record("fill", [&] { expect_ok(stream_->fill(memory->data(), 9, 16)); });
  ASSERT_NE(graph, nullptr);
  std::unique_ptr<Stream> other = device_->create_stream("other").value();
  expect_ok(graph->launch(*other));
  expect_ok(other->synchronize());
  EXPECT_EQ(read(memory->data(), 16), std::vector<std::uint8_t>(16, 9));
}

// Bug caught: a piece of a model that cannot be recorded or replayed because it has no kernels left.
TEST_P(DeviceConformance, EmptyGraphReplays) {
  std::unique_ptr<RecordedGraph> graph = record("nothing", [] {});
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(graph->stats().nodes, 0);
  expect_ok(graph->launch(*stream_));
  expect_ok(stream_->synchronize());
}

// Bug caught: side work that begins before the work that it must follow; and later work that does not wait for the side
// work. Both are tested eagerly and in a graph.
TEST_P(DeviceConformance, SideWorkIsOrderedByForkAndJoin) {
  const std::size_t bytes = std::size_t{1} << 22;
  std::unique_ptr<Allocation> memory = allocate(4 * bytes);
  ASSERT_NE(memory, nullptr);
  const auto part = [&](std::size_t i) { return memory->data() + i * bytes; };
  Stream* side = nullptr;
  const auto work = [&](std::uint8_t value) {
    expect_ok(stream_->fill(part(0), value, bytes));
    expect_ok(stream_->fork_side());
    expect_ok(side->copy(part(1), part(0), bytes));
    expect_ok(stream_->copy(part(2), part(0), bytes));
    expect_ok(stream_->join_side());
    expect_ok(stream_->copy(part(3), part(1), bytes));
    expect_ok(stream_->fill(part(0), 0, 8));
  };
  const auto expect_all = [&](std::uint8_t value) {
    for (std::size_t i = 1; i < 4; ++i)
      EXPECT_EQ(read(part(i), bytes), std::vector<std::uint8_t>(bytes, value)) << "part " << i;
  };
  side = stream_->side().value();
  work(1);
  expect_all(1);
  std::unique_ptr<RecordedGraph> graph = record("forked", [&] {
    work(2);
    EXPECT_TRUE(side->recording());
  });
  ASSERT_NE(graph, nullptr);
  EXPECT_FALSE(side->recording());
  EXPECT_EQ(graph->stats().nodes, 5);
  expect_all(1);
  work(3);  // after the join the side stream no longer records
  expect_all(3);
  for (int i = 0; i < 3; ++i) expect_ok(graph->launch(*stream_));
  expect_all(2);
}

// Bug caught: a side stream that is unusable after a recording was abandoned between fork and join.
TEST_P(DeviceConformance, AbandonedSideWorkLeavesTheStreamsUsable) {
  std::unique_ptr<Allocation> memory = allocate(16);
  ASSERT_NE(memory, nullptr);
  Stream* const side = stream_->side().value();
  expect_ok(stream_->begin_recording("left"));
  expect_ok(stream_->fork_side());
  expect_ok(side->fill(memory->data(), 1, 16));
  stream_->abandon_recording();
  expect_ok(stream_->fork_side());
  expect_ok(side->fill(memory->data(), 2, 16));
  expect_ok(stream_->join_side());
  EXPECT_EQ(read(memory->data(), 16), std::vector<std::uint8_t>(16, 2));
}

// Bug caught: a call that is accepted during a recording although it would break the capture, or would run once now and
// never in a replay.
TEST_P(DeviceConformance, RecordingRefusesByName) {
  std::unique_ptr<Allocation> memory = allocate(16);
  std::unique_ptr<Arena> arena = create_arena(1 << 20, "pool");
  std::unique_ptr<Stream> other = device_->create_stream("other").value();
  std::unique_ptr<Event> event = device_->create_event().value();
  ASSERT_TRUE(memory != nullptr && arena != nullptr);
  std::uint8_t host = 0;
  std::unique_ptr<RecordedGraph> graph = record("layer 7", [&] {
    expect_ok(stream_->fill(memory->data(), 3, 16));
    expect_refused(device_->allocate(64, "late").status(), {"allocation", "late", "layer 7"});
    expect_refused(device_->allocate_host(64, "late host").status(), {"allocation", "late host", "layer 7"});
    EXPECT_GT(device_->available_bytes(), 0) << "a number is no change";
    EXPECT_TRUE(device_->create_event().ok());
    expect_refused(device_->create_arena({.reserve_bytes = 4096, .name = "late"}).status(),
                   {"arena", "late", "layer 7"});
    expect_refused(arena->grow(4096), {"growth", "pool", "layer 7"});
    expect_refused(device_->create_stream("late").status(), {"stream", "late", "layer 7"});
    for (Stream* stream : {stream_.get(), other.get()}) {
      const std::string name = stream == other.get() ? "other" : "main";
      expect_refused(stream->upload(memory->data(), &host, 1), {"upload", name, "layer 7"});
      expect_refused(stream->download(&host, memory->data(), 1), {"download", name, "layer 7"});
      expect_refused(stream->synchronize(), {"synchron", name, "layer 7"});
    }
    expect_refused(event->synchronize(), {"event", "layer 7"});
    expect_refused(stream_->record(*event), {"event", "main", "layer 7"});
    expect_refused(stream_->wait(*event), {"event", "main", "layer 7"});
  });
  ASSERT_NE(graph, nullptr) << "refused calls leave the recording as it was";
  EXPECT_EQ(graph->stats().nodes, 1);
  EXPECT_EQ(arena->size(), size_at_first(*arena));
  expect_ok(graph->launch(*stream_));
  EXPECT_EQ(read(memory->data(), 16), std::vector<std::uint8_t>(16, 3));
}

// Bug caught: a graph that holds the address of memory that was freed during the recording.
TEST_P(DeviceConformance, FreeingVoidsTheRecording) {
  std::unique_ptr<Allocation> kept = allocate(16, "kept");
  std::unique_ptr<Allocation> small = allocate(16, "short-lived");
  std::unique_ptr<Allocation> large = allocate(3 << 20, "short-lived too");
  ASSERT_TRUE(kept != nullptr && small != nullptr && large != nullptr);
  expect_ok(stream_->begin_recording("piece 3"));
  expect_ok(stream_->copy(kept->data(), small->data(), 16));
  small.reset();
  large.reset();
  expect_refused(stream_->end_recording().status(), {"short-lived", "freed", "piece 3"});
  EXPECT_FALSE(stream_->recording());
  // The next recording is not affected.
  EXPECT_NE(record("piece 3", [&] { expect_ok(stream_->fill(kept->data(), 1, 16)); }), nullptr);
}

// Bug caught: a graph that holds the address of freed host memory, which a copy engine may still read.
TEST_P(DeviceConformance, FreeingHostMemoryVoidsTheRecording) {
  std::unique_ptr<HostAllocation> host = allocate_host(100, "lost batch");
  ASSERT_NE(host, nullptr);
  expect_ok(stream_->begin_recording("piece 5"));
  host.reset();
  expect_refused(stream_->end_recording().status(), {"lost batch", "freed", "piece 5"});
  EXPECT_NE(record("piece 5", [] {}), nullptr);
}

// Bug caught: a graph that holds addresses of a destroyed arena.
TEST_P(DeviceConformance, DestroyingAnArenaVoidsTheRecording) {
  std::unique_ptr<Arena> arena = create_arena(1 << 20, "lost arena");
  ASSERT_NE(arena, nullptr);
  expect_ok(arena->grow(4096));
  expect_ok(stream_->begin_recording("piece 4"));
  arena.reset();
  expect_refused(stream_->end_recording().status(), {"lost arena", "freed", "piece 4"});
}

// Bug caught: two recordings at the same time, in which the work of one stream gets into the graph of the other.
TEST_P(DeviceConformance, SecondRecordingIsRefused) {
  std::unique_ptr<Allocation> memory = allocate(16);
  std::unique_ptr<Stream> other = device_->create_stream("other").value();
  ASSERT_NE(memory, nullptr);
  std::unique_ptr<RecordedGraph> graph = record("first", [&] {
    expect_refused(stream_->begin_recording("nested"), {"nested", "first"});
    expect_refused(other->begin_recording("second"), {"second", "first"});
    std::thread([&] { expect_refused(other->begin_recording("third"), {"third", "first"}); }).join();
    EXPECT_FALSE(other->recording());
    expect_ok(stream_->fill(memory->data(), 4, 16));
  });
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(graph->stats().nodes, 1);
  expect_ok(other->begin_recording("second"));
  EXPECT_TRUE(other->end_recording().ok());
}

// Bug caught: a capture on one thread that prevents other threads from loading or serving.
TEST_P(DeviceConformance, OtherThreadsWorkWhileOneRecords) {
  std::unique_ptr<Allocation> memory = allocate(16);
  std::unique_ptr<Stream> other = device_->create_stream("other").value();
  ASSERT_NE(memory, nullptr);
  std::unique_ptr<RecordedGraph> graph = record("on this thread", [&] {
    std::thread([&] {
      std::unique_ptr<Allocation> mine = allocate(1000, "elsewhere");
      ASSERT_NE(mine, nullptr);
      const std::vector<std::uint8_t> values = pattern(1000, 3);
      std::vector<std::uint8_t> back(1000);
      expect_ok(other->upload(mine->data(), values.data(), 1000));
      expect_ok(other->download(back.data(), mine->data(), 1000));
      expect_ok(other->synchronize());
      EXPECT_EQ(back, values);
    }).join();
    expect_ok(stream_->fill(memory->data(), 4, 16));
  });
  ASSERT_NE(graph, nullptr) << "memory freed on another thread does not void the recording";
  EXPECT_EQ(graph->stats().nodes, 1) << "another stream's work is not recorded";
}

// Bug caught: a graph whose launch is recorded into a second graph, which then works only as long as the first graph
// exists.
TEST_P(DeviceConformance, ReplayOnARecordingStreamIsRefused) {
  std::unique_ptr<RecordedGraph> inner = record("inner", [] {});
  ASSERT_NE(inner, nullptr);
  std::unique_ptr<RecordedGraph> outer = record("outer", [&] {
    expect_refused(inner->launch(*stream_), {"inner", "outer"});
  });
  EXPECT_NE(outer, nullptr);
}

// Bug caught: a capture that fails midway and leaves the device unable to allocate, run or record.
TEST_P(DeviceConformance, AbandoningRestoresTheDevice) {
  std::unique_ptr<Allocation> memory = allocate(16);
  ASSERT_NE(memory, nullptr);
  expect_ok(stream_->fill(memory->data(), 1, 16));
  expect_ok(stream_->begin_recording("bad piece"));
  expect_ok(stream_->fill(memory->data(), 2, 16));
  expect_refused(device_->allocate(16, "x").status(), {"bad piece"});
  stream_->abandon_recording();
  EXPECT_FALSE(stream_->recording());
  EXPECT_NE(allocate(16), nullptr);
  EXPECT_EQ(read(memory->data(), 16), std::vector<std::uint8_t>(16, 1)) << "what was recorded never runs";
  std::unique_ptr<RecordedGraph> graph = record("good", [&] { expect_ok(stream_->fill(memory->data(), 5, 8)); });
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(graph->stats().nodes, 1) << "the abandoned launches are not in the next graph";
  stream_->abandon_recording();  // does nothing, since no recording is open
}

// Bug caught: a recording that stays open after end_recording() on another thread, so that no thread can record or
// allocate.
TEST_P(DeviceConformance, EndOnAnotherThreadDropsTheRecording) {
  std::unique_ptr<Allocation> memory = allocate(16);
  ASSERT_NE(memory, nullptr);
  expect_ok(stream_->fill(memory->data(), 1, 16));
  expect_ok(stream_->begin_recording("piece 9"));
  expect_ok(stream_->fill(memory->data(), 2, 16));
  std::thread([&] { expect_refused(stream_->end_recording().status(), {"piece 9", "another thread"}); }).join();
  EXPECT_FALSE(stream_->recording());
  EXPECT_EQ(read(memory->data(), 16), std::vector<std::uint8_t>(16, 1));
  EXPECT_NE(allocate(16), nullptr);
  std::unique_ptr<RecordedGraph> graph = record("next", [&] { expect_ok(stream_->fill(memory->data(), 3, 16)); });
  ASSERT_NE(graph, nullptr);
  expect_ok(graph->launch(*stream_));
  EXPECT_EQ(read(memory->data(), 16), std::vector<std::uint8_t>(16, 3));
}

// Bug caught: a stream that is destroyed during a recording (on an error path) and prevents all later recordings.
TEST_P(DeviceConformance, DestroyingARecordingStreamEndsIt) {
  {
    std::unique_ptr<Stream> other = device_->create_stream("other").value();
    expect_ok(other->begin_recording("never ended"));
  }
  EXPECT_NE(allocate(16), nullptr);
  EXPECT_NE(record("next", [] {}), nullptr);
}

// Bug caught: end_recording() returns an empty graph instead of an error if begin_recording() was not called.
TEST_P(DeviceConformance, EndWithoutBeginIsRefused) { expect_refused(stream_->end_recording().status(), {"main"}); }

// Bug caught: a graph that refers to a host array that no longer exists. Many replays make this visible.
TEST_P(DeviceConformance, ManyNodesManyReplays) {
  const std::size_t nodes = 1000;
  std::unique_ptr<Allocation> memory = allocate(nodes);
  ASSERT_NE(memory, nullptr);
  std::unique_ptr<RecordedGraph> graph = record("long", [&] {
    for (std::size_t i = 0; i < nodes; ++i) {
      expect_ok(stream_->fill(memory->data() + i, static_cast<std::uint8_t>(i % 251), 1));
    }
  });
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(graph->stats().nodes, static_cast<std::int64_t>(nodes));
  std::vector<std::uint8_t> expected(nodes);
  for (std::size_t i = 0; i < nodes; ++i) expected[i] = static_cast<std::uint8_t>(i % 251);
  for (int i = 0; i < 5; ++i) {
    expect_ok(stream_->fill(memory->data(), 255, nodes));
    expect_ok(graph->launch(*stream_));
    EXPECT_EQ(read(memory->data(), nodes), expected);
  }
}

}  // namespace tessera
