// Reads the bodies of calls on the pools' threads: inflates a body, and converts it to the form that the call's route
// needs. The memory for this is charged to the call.
//
// A body of up to kSmallTextBytes starts in the pool of small texts. A larger or compressed body starts in the pool of
// large texts. If a body turns out to need other work, it is read again in that work's pool (text_work.h).
//
// Threads: used on the I/O thread only.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/server/api_result.h"
#include "tessera/server/http/call.h"
#include "tessera/server/http/http.h"
#include "tessera/server/memory_budget.h"
#include "tessera/server/served_model.h"
#include "tessera/server/work/request_memory.h"
#include "tessera/server/work/text_pools.h"

namespace tessera {

// Calls `function` and turns an exception (out of memory, or from a library) into an error of this request.
template <class T, class Function>
ApiResult<T> guarded(const Function& function) {
  try {
    return function();
  } catch (const std::exception& e) {
    return internal_error(e.what());
  }
}

class RequestReader {
 public:
  // All arguments outlive the object, and `http` outlives the pools' threads.
  RequestReader(const ServedModel& model, std::size_t max_body_bytes, TextPools& pools, HttpServer& http)
      : model_(model), max_body_bytes_(max_body_bytes), pools_(pools), http_(http) {}

  // Calls `make` with the whole body on a pool's thread, and then `then` on the I/O thread. Does not call `then` if a
  // pool refuses the call, or if the client leaves while the call waits for a thread.
  template <class T>
  void read(Call call, std::function<ApiResult<T>(const ServedModel& model, std::string_view body)> make,
            std::function<void(Call call, ApiResult<T> made)> then) {
    start(std::move(call),
          [this, make = std::move(make), then = std::move(then)](MemoryCharge& memory, std::string_view body,
                                                                 const ApiStatus& whole) -> Finish {
            auto made = std::make_shared<ApiResult<T>>(whole.ok() ? guarded<T>([&] { return make(model_, body); })
                                                                  : ApiResult<T>(whole.error()));
            if (made->ok()) {
              ApiStatus held = memory.set(held_bytes(**made, model_.num_logits(), model_.hidden_size));
              if (!held.ok()) *made = std::move(held.error());
            }
            return [then, made](Call done) { then(std::move(done), std::move(*made)); };
          });
  }

 private:
  using Finish = std::function<void(Call call)>;
  // Makes the result from the body. If the body could not be inflated, or if there was no memory for reading it,
  // `whole` is an error, and the result is made from this error instead. Returns a function that hands the result on.
  // `memory` is the call's charge. Afterwards it holds the charge for the result.
  using Make = std::function<Finish(MemoryCharge& memory, std::string_view body, const ApiStatus& whole)>;
  struct Reading;

  void start(Call call, Make make);
  void place(const std::shared_ptr<Reading>& reading, TextWork work);
  void run(const std::shared_ptr<Reading>& reading, TextWork work);

  const ServedModel& model_;
  std::size_t max_body_bytes_;
  TextPools& pools_;
  HttpServer& http_;
};

}  // namespace tessera
