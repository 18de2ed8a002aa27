// Catches: heap allocation in a decode step, in the engine or in the whole server. Allocation costs time and, over
// days, memory.
//
// This is a separate program, because it replaces operator new for the whole process.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <thread>

#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"
#include "tessera/ops/testing/ranks.h"
#include "tessera/server/server.h"

namespace {

std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = alignment > alignof(std::max_align_t)
                     ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                     : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new[](std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tessera {
namespace {

class SteadyDecode : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, SteadyDecode, ::testing::Bool(),
                         [](const auto& overlap) { return overlap.param ? "ahead" : "in_step"; });

void expect_no_allocations(bool overlap, int ranks, int steps) {
  EngineOptions options{.model_path = testing::data_path("goldens/llama/config.json"),
                        .device = testing::test_device_name(),
                        .dtype = "float32",
                        .load_format = LoadFormat::kDummy};
  options.context_length = 1200;
  options.chunked_prefill_size = 64;
  options.max_running_requests = 4;
  options.random_seed = 1;
  options.graphs.piecewise_tokens = {16, 64};
  options.overlap_schedule = overlap;
  options.tp_size = ranks;
  auto engine = Engine::create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  for (std::int32_t i = 0; i < 3; ++i) {
    Request request{.prompt = {TokenId(i + 1), TokenId(5)},
                    .stop = {.max_new_tokens = steps + 150, .ignore_eos = true}};
    if (i == 1) request.sampling = {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .seed = 3};
    ASSERT_TRUE((*engine)->submit(std::move(request)).ok());
  }
  // Runs the prompts and a few steps, in which every buffer reaches its final size.
  for (int i = 0; i < 50; ++i) ASSERT_TRUE((*engine)->step().ok());
  const std::int64_t before = allocations;
  std::size_t tokens = 0;
  for (int i = 0; i < steps; ++i) {
    const Result<std::span<RequestEvent>> events = (*engine)->step();
    ASSERT_TRUE(events.ok());
    tokens += events->size();
  }
  EXPECT_EQ(allocations - before, 0);
  EXPECT_EQ(tokens, 3u * static_cast<std::size_t>(steps));
}

TEST_P(SteadyDecode, AllocatesNothingInAThousandSteps) { expect_no_allocations(GetParam(), 1, 1000); }
// With two ranks, three more things must reuse their memory: the messages to the second rank, the second rank's
// answers, and the second rank's page tables.
TEST_P(SteadyDecode, AllocatesNothingOnTwoRanks) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  expect_no_allocations(GetParam(), 2, 200);
}

// A client that allocates nothing while it reads: it has one connection and one buffer.
class StreamReader {
 public:
  ~StreamReader() { ::close(socket_); }

  void request(std::uint16_t port, const std::string& path, const std::string& body) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const std::string message = "POST " + path +
                                " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
                                "\r\n\r\n" + body;
    ASSERT_EQ(::send(socket_, message.data(), message.size(), 0), static_cast<ssize_t>(message.size()));
  }

  // Reads until `events` server-sent events have arrived in total; returns false if the stream ends before that.
  bool read_to(int events) {
    while (events_ < events) {
      const ssize_t got = ::recv(socket_, buffer_, sizeof(buffer_), 0);
      if (got <= 0) return false;
      for (const char c : std::string_view(buffer_, static_cast<std::size_t>(got))) {
        if (c == '\n' && last_ == '\n') ++events_;
        last_ = c;
      }
    }
    return true;
  }

 private:
  int socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
  char buffer_[4096] = {};
  char last_ = 0;
  int events_ = 0;
};

struct Streamed {
  const char* name;
  const char* path;
  const char* body;
};

class SteadyServer : public ::testing::TestWithParam<Streamed> {};
INSTANTIATE_TEST_SUITE_P(
    , SteadyServer,
    ::testing::Values(Streamed{"completions", "/v1/completions",
                               R"({"model": "demo", "prompt": "Once upon a time", "stream": true, "ignore_eos": true,
                                   "max_tokens": 700, "temperature": 0})"},
                      Streamed{"chat", "/v1/chat/completions",
                               R"({"model": "demo", "messages": [{"role": "user", "content": "Tell me about foxes."}],
                                   "stream": true, "ignore_eos": true, "max_tokens": 700, "temperature": 0})"}),
    [](const auto& streamed) { return std::string(streamed.param.name); });

// The largest number of allocations that the test accepts between tokens 100 and 350. The completion collects the whole
// text in one string, which doubles its memory at most three times meanwhile. On a busy machine the I/O thread may lag
// many tokens behind the engine. The queue between the two then grows a few times too. One allocation for each token
// would make 250.
constexpr std::int64_t kMostGrowths = 8;

// Covers all work for a token: the engine's step, its event, the snapshot of statistics, the metrics, the answer's
// JSON, and the socket.
TEST_P(SteadyServer, AllocatesNothingForATokenOfAStream) {
  EngineOptions options{.model_path = testing::source_path("models/demo"), .device = testing::test_device_name()};
  options.context_length = 1024;
  options.graphs.piecewise_tokens = {16, 64};
  auto engine = Engine::create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  auto server = Server::create({.http = {.port = 0}, .served_model_name = "demo"}, **engine);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  const std::string address = (*server)->address();
  const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  std::thread io([&] { EXPECT_TRUE((*server)->run().ok()); });
  {
    StreamReader reader;
    reader.request(port, GetParam().path, GetParam().body);
    EXPECT_TRUE(reader.read_to(100)) << "a few steps in which every buffer finds its size";
    const std::int64_t before = allocations;
    EXPECT_TRUE(reader.read_to(350));
    EXPECT_LE(allocations - before, kMostGrowths) << "in 250 tokens";
  }
  (*server)->stop(0);
  io.join();
}

}  // namespace
}  // namespace tessera
