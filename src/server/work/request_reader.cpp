#include "tessera/server/work/request_reader.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "tessera/server/http/bodies/content_coding.h"

namespace tessera {

// A call whose body is being read.
struct RequestReader::Reading {
  Reading(Call its_call, Make its_make) : call(std::move(its_call)), make(std::move(its_make)) {}
  Call call;
  Make make;
  std::string body{};
  std::string coding{};  // the body's Content-Encoding; "" once it is inflated
};

void RequestReader::start(Call call, Make make) {
  const auto reading = std::make_shared<Reading>(std::move(call), std::move(make));
  reading->body = reading->call.take_body();
  reading->coding = reading->call.request().header("Content-Encoding");
  const bool small = reading->body.size() <= kSmallTextBytes && reading->coding.empty();
  place(reading, small ? TextWork::kSmall : TextWork::kLarge);
}

void RequestReader::place(const std::shared_ptr<Reading>& reading, TextWork work) {
  pools_.post(work, reading->call, [this, reading, work] { run(reading, work); });
}

// Inflates and reads the body, on a thread of the pool.
void RequestReader::run(const std::shared_ptr<Reading>& reading, TextWork work) {
  TextPoolScope scope(work);
  MemoryCharge& memory = reading->call.memory();
  const ApiStatus whole = guarded<std::monostate>([&]() -> ApiStatus {
    if (!reading->coding.empty() && !reading->body.empty()) {
      reading->body = TRY(
          decode_body(std::exchange(reading->body, {}), std::exchange(reading->coding, {}), max_body_bytes_, memory));
    }
    return memory.set(reading_bytes(reading->body));
  });
  Finish finish = reading->make(memory, reading->body, whole);
  if (const std::optional<TextWork> other = scope.moves_to()) {
    (void)memory.set(
        std::min<std::int64_t>(memory.bytes(), std::ssize(reading->body)));  // lowering a charge never fails
    http_.post([this, reading, other] { place(reading, *other); });
  } else {
    http_.post([call = reading->call, finish = std::move(finish)] { finish(call); });
  }
}

}  // namespace tessera
