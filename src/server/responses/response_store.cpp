#include "tessera/server/responses/response_store.h"

#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <utility>

#include "tessera/base/json_fields.h"

namespace tessera {
namespace {

constexpr std::int64_t kBytesOfEntry = 512;  // bytes that the containers take for an entry

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ApiError unknown(std::string_view what, std::string_view id) {
  return {
      .http_status = 404,
      .message = fmt::format("there is no {} with id \"{}\": none had it, or it was deleted, is too old or made room "
                             "for others",
                             what, clip_text(std::string(id))),
      .param = "response_id",
      .code = "not_found"};
}

std::int64_t bytes_of(const StoredResponse& response) {
  std::size_t bytes = response.id.size() * 2 + response.owner.size() + response.body.size();
  for (const std::string& id : response.item_ids) bytes += 3 * id.size() + 128;
  return static_cast<std::int64_t>(bytes) + kBytesOfEntry;
}

}  // namespace

ResponseStore::ResponseStore(Limits limits, Clock clock)
    : limits_(limits), clock_(clock ? std::move(clock) : steady_seconds), budget_(limits.bytes) {}

void ResponseStore::forget(Place place) {
  for (const std::string& item : place->response->item_ids) items_.erase(item);
  places_.erase(place->response->id);
  kept_.erase(place);
}

void ResponseStore::forget_old() {
  const double oldest = clock_() - limits_.age_s;
  for (Place place = kept_.begin(); place != kept_.end();) {
    const Place next = std::next(place);
    if (place->stored_at < oldest && !place->response->running) forget(place);
    place = next;
  }
}

bool ResponseStore::forget_one() {
  for (Place place = kept_.end(); place != kept_.begin();) {
    --place;
    if (place->response->running) continue;
    forget(place);
    return true;
  }
  return false;
}

ApiStatus ResponseStore::charge_locked(MemoryCharge& charge, std::int64_t bytes) {
  for (;;) {
    ApiStatus charged = charge.set(bytes);
    if (charged.ok()) return charged;
    if (charged.error().http_status != 413 && forget_one()) continue;
    ApiError error = std::move(charged.error());
    error.message = fmt::format("{} bytes do not fit into the store, which holds {} (--response-store-memory)", bytes,
                                limits_.bytes);
    return error;
  }
}

ApiStatus ResponseStore::charge(MemoryCharge& charge, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  return charge_locked(charge, bytes);
}

ApiStatus ResponseStore::put(StoredResponse response) {
  const std::lock_guard lock(mutex_);
  Kept kept{.charge = new_charge(), .stored_at = clock_()};
  if (const auto known = places_.find(response.id); known != places_.end()) {
    kept.stored_at = known->second->stored_at;
    forget(known->second);
  } else {
    forget_old();
  }
  while (kept_.size() >= limits_.number) {
    if (!forget_one()) {
      return ApiError{.http_status = 503,
                      .message = fmt::format("{} background responses run, the most that are stored", kept_.size()),
                      .type = "server_error",
                      .param = "background",
                      .code = "service_unavailable",
                      .retry_after_s = 1};
    }
  }
  TRY(charge_locked(kept.charge, bytes_of(response)));
  kept.response = std::make_shared<const StoredResponse>(std::move(response));
  kept_.push_front(std::move(kept));
  const Place place = kept_.begin();
  places_[place->response->id] = place;
  for (const std::string& item : place->response->item_ids) items_[item] = place->response->id;
  return api_ok();
}

ApiResult<ResponseStore::Place> ResponseStore::place_of(std::string_view id, std::string_view owner) {
  const auto known = places_.find(std::string(id));
  if (known == places_.end() || known->second->response->owner != owner) return unknown("response", id);
  const Place place = known->second;
  if (place->stored_at < clock_() - limits_.age_s && !place->response->running) {
    forget(place);
    return unknown("response", id);
  }
  return place;
}

ApiResult<std::shared_ptr<const StoredResponse>> ResponseStore::find(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  const Place place = TRY(place_of(id, owner));
  kept_.splice(kept_.begin(), kept_, place);
  return place->response;
}

ApiResult<std::shared_ptr<const StoredResponse>> ResponseStore::find_item(std::string_view item_id,
                                                                          std::string_view owner) {
  const std::lock_guard lock(mutex_);
  const auto known = items_.find(std::string(item_id));
  if (known == items_.end()) return unknown("item", item_id);
  ApiResult<Place> place = place_of(std::string(known->second), owner);
  if (!place.ok()) return unknown("item", item_id);
  kept_.splice(kept_.begin(), kept_, *place);
  return (*place)->response;
}

ApiStatus ResponseStore::erase(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  forget(TRY(place_of(id, owner)));
  return api_ok();
}

std::size_t ResponseStore::count() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

}  // namespace tessera
