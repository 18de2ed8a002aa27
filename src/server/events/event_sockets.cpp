#include "tessera/server/events/event_sockets.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tessera/server/events/zmq_context.h"

namespace tessera {
namespace {

constexpr int kLingerMs = 500;
constexpr std::size_t kNumberBytes = 8;

}  // namespace

struct EventSockets::Impl {
  ~Impl() {
    context.reset();  // the context must end before `wakes` is closed
    if (wakes >= 0) close(wakes);
  }
  const ZmqLibrary& zmq() const { return context->library(); }

  std::unique_ptr<ZmqContext> context;
  std::string topic;
  void* events = nullptr;
  void* replays = nullptr;  // null: nothing is replayed
  int wakes = -1;           // an eventfd, by which wake() ends wait()
};

Result<std::unique_ptr<EventSockets>> EventSockets::open(const KvEventsOptions& options, int rank) {
  auto impl = std::make_unique<Impl>();
  impl->context = TRY(ZmqContext::create());
  impl->wakes = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (impl->wakes < 0) return resource_exhausted(fmt::format("no event descriptor can be made: {}", strerror(errno)));
  impl->topic = options.topic;
  impl->events =
      TRY(impl->context
              ->open(endpoint_of(options.endpoint, rank),
                     {.type = ZMQ_PUB, .listens = options.listens(), .waiting = options.hwm, .linger_ms = kLingerMs})
              .with_context("\"endpoint\""));
  if (!options.replay_endpoint.empty()) {
    // A replay is sent without waiting for the client. The socket therefore needs room for all messages of a replay: up
    // to `buffer_steps` batches, and the mark of the end.
    impl->replays = TRY(
        impl->context
            ->open(endpoint_of(options.replay_endpoint, rank),
                   {.type = ZMQ_ROUTER, .listens = true, .waiting = options.buffer_steps + 1, .linger_ms = kLingerMs})
            .with_context("\"replay_endpoint\""));
  }
  return std::unique_ptr<EventSockets>(new EventSockets(std::move(impl)));
}

EventSockets::EventSockets(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EventSockets::~EventSockets() = default;

bool EventSockets::publish(std::uint64_t number, std::string_view message) {
  return impl_->context->send(impl_->events, {impl_->topic, number_bytes(number), message});
}

// A request has three frames. The first is the client's name, which the socket adds. The second is empty. The third is
// the number of a batch.
std::optional<EventSockets::Request> EventSockets::next_request() {
  if (impl_->replays == nullptr) return std::nullopt;
  std::array<char, ZmqContext::kLargestRequest> frame{};
  for (;;) {
    Request request;
    bool valid = true;
    int more = 1;
    for (int count = 0; more != 0; ++count) {
      const int size = impl_->zmq().recv(impl_->replays, frame.data(), frame.size(), ZMQ_DONTWAIT);
      if (size < 0) return std::nullopt;
      const std::string_view bytes(frame.data(), std::min(static_cast<std::size_t>(size), frame.size()));
      std::size_t length = sizeof more;
      if (impl_->zmq().getsockopt(impl_->replays, ZMQ_RCVMORE, &more, &length) != 0) return std::nullopt;
      if (count == 0) request.client = bytes;
      if (count == 1) valid = bytes.empty() && more != 0;
      if (count == 2) {
        valid = valid && bytes.size() == kNumberBytes && more == 0;
        for (const char byte : bytes) request.first = request.first << 8 | static_cast<unsigned char>(byte);
      }
    }
    if (valid) return request;
  }
}

void EventSockets::replay(const Request& request, std::uint64_t number, std::string_view message) {
  (void)impl_->context->send(impl_->replays, {request.client, "", impl_->topic, number_bytes(number), message});
}

void EventSockets::end_replay(const Request& request) {
  (void)impl_->context->send(impl_->replays, {request.client, "", "", number_bytes(UINT64_MAX), ""});
}

void EventSockets::wait() {
  std::array<zmq_pollitem_t, 2> items{};
  items[0].fd = impl_->wakes;
  items[0].events = ZMQ_POLLIN;
  items[1].socket = impl_->replays;
  items[1].events = ZMQ_POLLIN;
  impl_->zmq().poll(items.data(), impl_->replays == nullptr ? 1 : 2, -1);
  std::uint64_t count = 0;
  (void)!read(impl_->wakes, &count, sizeof count);
}

void EventSockets::wake() {
  const std::uint64_t one = 1;
  (void)!write(impl_->wakes, &one, sizeof one);
}

}  // namespace tessera
