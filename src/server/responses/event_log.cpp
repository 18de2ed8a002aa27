#include "tessera/server/responses/event_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/server/fields/api_fields.h"

namespace tessera {
namespace {

// The largest number of bytes that are sent at once to a follower, a client that streams the response. It is less than
// HttpOptions::max_unsent_bytes, because a client with more unsent bytes is dropped.
constexpr std::size_t kSliceBytes = std::size_t{128} << 10;

}  // namespace

struct EventLog::Follower {
  Call call;
  std::size_t sent = 0;  // bytes of the log that were given to the call
  bool sending = false;  // the last slice is not sent yet
};

void EventLog::append(std::string_view events) {
  if (!kept_.ok() || events.empty()) return;
  if (ApiStatus charged = store_.charge(charge_, std::ssize(text_) + std::ssize(events)); !charged.ok()) {
    kept_ = std::move(charged);
    text_ = {};
    charge_.release();
    for (const auto& follower : std::exchange(followers_, {}))
      follower->call.fail({.http_status = 503,
                           .message = "the response's events do not fit into the store of responses "
                                      "(--response-store-memory)",
                           .param = {},
                           .code = {}});
    return;
  }
  std::size_t at = text_.size();
  text_ += events;
  while (at < text_.size()) {
    starts_.push_back(at);
    at = std::min(text_.find("\n\n", at), text_.size() - 2) + 2;
  }
  pump_all();
}

void EventLog::end() {
  ended_ = true;
  pump_all();
}

ApiStatus EventLog::follow(Call call, std::int64_t after) {
  if (!kept_.ok())
    return invalid_field("stream",
                         "the response's events are not kept, as they do not fit into the store; accepted: a request "
                         "without \"stream\"");
  const std::int64_t next = after + 1;
  if (next > std::ssize(starts_))
    return invalid_field("starting_after", fmt::format("the response has {} events so far; accepted: 0 to {}",
                                                       starts_.size(), std::ssize(starts_) - 1));
  const auto follower = std::make_shared<Follower>(Follower{.call = std::move(call)});
  follower->sent = next < std::ssize(starts_) ? starts_[static_cast<std::size_t>(next)] : text_.size();
  follower->call.start_stream("", "text/event-stream");
  followers_.push_back(follower);
  follower->call.on_disconnect([weak = weak_from_this(), gone = std::weak_ptr<Follower>(follower)] {
    if (const std::shared_ptr<EventLog> log = weak.lock()) std::erase(log->followers_, gone.lock());
  });
  pump(follower);
  return api_ok();
}

// Sends the next slice once the slice before it was sent.
void EventLog::pump(const std::shared_ptr<Follower>& follower) {
  if (follower->sending) return;
  const std::string_view slice = std::string_view(text_).substr(follower->sent, kSliceBytes);
  if (slice.empty()) {
    if (!ended_) return;
    follower->call.finish("done");
    std::erase(followers_, follower);
    return;
  }
  follower->sending = true;
  follower->sent += slice.size();
  follower->call.write(slice);
  // The callback keeps the log alive, even if its response is deleted meanwhile.
  follower->call.on_sent([log = shared_from_this(), weak = std::weak_ptr<Follower>(follower)] {
    const std::shared_ptr<Follower> next = weak.lock();
    if (next == nullptr) return;
    next->sending = false;
    log->pump(next);
  });
}

void EventLog::pump_all() {
  for (const auto& follower : std::vector(followers_)) pump(follower);
}

}  // namespace tessera
