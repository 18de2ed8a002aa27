// Stores responses for GET, for previous_response_id and for background work. The store is bounded by bytes, number and
// age. To make room, it forgets the least recently used response that is not running.
//
//   ResponseStore store({.bytes = 1 << 28, .number = 1000, .age_s = 86400});
//   store.put({.id = id, .owner = owner, .body = object});
//   const std::shared_ptr<const StoredResponse> kept = TRY(store.find(id, owner));
//
// The owner of a response is owner_of() of the client that made it. For all other clients the response's id is unknown.
//
// Threads: any thread may call every function.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/memory_budget.h"
#include "tessera/server/responses/conversation_turn.h"

namespace tessera {

class EventLog;

struct StoredResponse {
  std::string id;
  std::string owner{};
  std::string body{};                              // the response object
  std::shared_ptr<const ConversationTurn> turn{};  // null: still running, failed, cancelled, or its items do not fit
  std::vector<std::string> item_ids{};             // ids of the turn's output items
  std::shared_ptr<EventLog> events{};              // set for streamed background responses; only the I/O thread uses it
  bool background = false;
  bool running = false;
};

class ResponseStore {
 public:
  struct Limits {
    std::int64_t bytes = std::int64_t{256} << 20;
    std::size_t number = 10'000;  // 0: nothing is stored
    double age_s = 30.0 * 86400;  // seconds for which a response is kept
  };
  using Clock = std::function<double()>;  // seconds

  // `clock` measures ages; if it is empty, a steady clock is used.
  explicit ResponseStore(Limits limits, Clock clock = {});

  bool enabled() const { return limits_.number > 0; }
  const Limits& limits() const { return limits_; }

  // Stores a response. If the store has an older response with this id, replaces it. The new response then keeps the
  // age of the older one. Errors: 503 if the response does not fit beside the running responses, 413 if it does not fit
  // at all.
  ApiStatus put(StoredResponse response);
  // Returns a response. Error: 404 if there is none, it is too old or it has another owner.
  ApiResult<std::shared_ptr<const StoredResponse>> find(std::string_view id, std::string_view owner);
  // Returns the response that made an item. Errors are those of find().
  ApiResult<std::shared_ptr<const StoredResponse>> find_item(std::string_view item_id, std::string_view owner);
  ApiStatus erase(std::string_view id, std::string_view owner);

  // Changes `charge`, which belongs to the store, to `bytes`. Forgets responses if that is needed to make room.
  ApiStatus charge(MemoryCharge& charge, std::int64_t bytes);
  // Returns a charge that belongs to the store.
  MemoryCharge new_charge() { return MemoryCharge(&budget_); }

  std::size_t count() const;
  std::int64_t bytes() const { return budget_.used(); }

 private:
  struct Kept {
    std::shared_ptr<const StoredResponse> response{};
    MemoryCharge charge{};
    double stored_at = 0;
  };
  using Place = std::list<Kept>::iterator;

  void forget(Place place);
  void forget_old();
  // Forgets the least recently used response that is not running. Returns false if there is none.
  bool forget_one();
  ApiStatus charge_locked(MemoryCharge& charge, std::int64_t bytes);
  ApiResult<Place> place_of(std::string_view id, std::string_view owner);

  const Limits limits_;
  const Clock clock_;
  MemoryBudget budget_;
  mutable std::mutex mutex_;
  // All members below are guarded by mutex_.
  std::list<Kept> kept_;  // the most recently used first
  std::unordered_map<std::string, Place> places_;
  std::unordered_map<std::string, std::string> items_;  // maps the id of an item to the id of its response
};

}  // namespace tessera
