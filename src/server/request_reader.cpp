#include "tessera/server/request_reader.h"

#include <optional>

#include "tessera/server/content_coding.h"

namespace tessera {

// A call whose body is being read.
struct RequestReader::Reading {
  Reading(Call its_call, Make its_make) : call(std::move(its_call)), make(std::move(its_make)) {}
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  ~Reading() {
    if (charged_to != nullptr) charged_to->fetch_sub(charged);
  }

  Call call;
  Make make;
  std::string body{};
  std::string coding{};  // of the body, until it is inflated
  std::shared_ptr<std::atomic<std::size_t>> charged_to{};
  std::size_t charged = 0;
};

void RequestReader::start(Call call, Make make) {
  const auto reading = std::make_shared<Reading>(std::move(call), std::move(make));
  reading->body = reading->call.take_body();
  reading->coding = reading->call.request().header("Content-Encoding");
  const bool small = reading->body.size() <= kSmallTextBytes && reading->coding.empty();
  if (!small) {
    reading->charged = reading->body.size();
    reading->charged_to = large_bytes_;
    if (large_bytes_->fetch_add(reading->charged) + reading->charged > kMaxLargeBytes) {
      reading->call.refuse({.http_status = 503,
                            .message = "too many large requests are being read; come again",
                            .type = "server_error",
                            .param = {},
                            .code = "service_unavailable",
                            .retry_after_s = 1});
      return;
    }
  }
  place(reading, small ? TextWork::kSmall : TextWork::kLarge);
}

void RequestReader::place(const std::shared_ptr<Reading>& reading, TextWork work) {
  pools_.post(work, reading->call, [this, reading, work] { run(reading, work); });
}

// On a thread of the pool.
void RequestReader::run(const std::shared_ptr<Reading>& reading, TextWork work) {
  TextPoolScope scope(work);
  ApiStatus whole = api_ok();
  if (!reading->coding.empty() && !reading->body.empty()) {
    ApiResult<std::string> inflated = guarded<std::string>([&] {
      return decode_body(std::exchange(reading->body, {}), std::exchange(reading->coding, {}), max_body_bytes_);
    });
    if (inflated.ok()) {
      reading->body = *std::move(inflated);
    } else {
      whole = inflated.error();
    }
  }
  Finish finish = reading->make(reading->body, whole);
  if (const std::optional<TextWork> other = scope.moves_to()) {
    http_.post([this, reading, other] { place(reading, *other); });
  } else {
    http_.post([call = reading->call, finish = std::move(finish)] { finish(call); });
  }
}

}  // namespace tessera
