#include "tessera/server/batches/batch_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "tessera/base/json_fields.h"
#include "tessera/base/log.h"
#include "tessera/base/write_file.h"
#include "tessera/server/http/random_id.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

ApiError no_such_batch(std::string_view id) {
  return {.http_status = 404,
          .message = fmt::format("there is no batch \"{}\"", clip_text(std::string(id))),
          .param = "batch_id",
          .code = "batch_not_found"};
}

bool is_older(const Batch& a, const Batch& b) {
  return std::pair(a.created_at, std::string_view(a.id)) < std::pair(b.created_at, std::string_view(b.id));
}

}  // namespace

fs::path BatchStore::file_of(std::string_view id, std::string_view ending) const {
  return folder_ / fmt::format("{}{}", id, ending);
}

Result<std::unique_ptr<BatchStore>> BatchStore::open(fs::path folder, Limits limits) {
  std::unique_ptr<BatchStore> store(new BatchStore(std::move(folder), limits));
  TRY(store->load());
  return store;
}

Status BatchStore::load() {
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() != ".json") continue;
    const auto read = [&]() -> Result<Batch> {
      return read_batch_record(TRY(read_json_object(path.string())), path.stem().string());
    };
    Result<Batch> batch = read();
    if (batch.ok()) {
      batches_.emplace(batch->id, *batch);
    } else {
      log_warn("server", "the batch {} is left out: {}", path.stem().string(), batch.status().message());
    }
  }
  if (error) return not_found(fmt::format("cannot list {}: {}", folder_.string(), error.message()));
  return ok_status();
}

Status BatchStore::give_unnamed(const std::string& owner) {
  if (owner.empty()) return ok_status();
  const std::lock_guard writing(disk_);
  const std::lock_guard lock(mutex_);
  for (auto& [id, batch] : batches_) {
    if (!batch.owner.empty()) continue;
    batch.owner = owner;
    TRY(replace_file(file_of(id, ".json"), batch_record(batch)));
  }
  return ok_status();
}

void BatchStore::forget_oldest() {
  auto oldest = batches_.end();
  for (auto each = batches_.begin(); each != batches_.end(); ++each) {
    if (each->second.ended() && (oldest == batches_.end() || is_older(each->second, oldest->second))) oldest = each;
  }
  if (oldest == batches_.end()) return;
  std::error_code ignored;
  fs::remove(file_of(oldest->first, ".json"), ignored);
  batches_.erase(oldest);
}

ApiResult<Batch> BatchStore::add(Batch batch) {
  batch.id = make_id("batch_");
  const std::lock_guard writing(disk_);
  if (const std::size_t running = this->running().size(); running >= limits_.running)
    return ApiError{.http_status = 429,
                    .message = fmt::format("{} batches have not ended, which is the most", running),
                    .type = "rate_limit_error",
                    .param = {},
                    .code = "too_many_batches",
                    .retry_after_s = 60};
  if (const Status written = replace_file(file_of(batch.id, ".json"), batch_record(batch)); !written.ok())
    return api_error(internal_error(written.message()));
  const std::lock_guard lock(mutex_);
  if (batches_.size() >= limits_.number) forget_oldest();
  batches_.emplace(batch.id, batch);
  return batch;
}

ApiResult<Batch> BatchStore::find(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  const auto found = batches_.find(id);
  if (found == batches_.end() || found->second.owner != owner) return no_such_batch(id);
  return found->second;
}

std::vector<Batch> BatchStore::those(const std::function<bool(const Batch&)>& wanted) {
  std::vector<Batch> found;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, batch] : batches_) {
      if (wanted(batch)) found.push_back(batch);
    }
  }
  std::ranges::sort(found, is_older);
  return found;
}

std::vector<Batch> BatchStore::list(std::string_view owner) {
  std::vector<Batch> found = those([owner](const Batch& batch) { return batch.owner == owner; });
  std::ranges::reverse(found);
  return found;
}

std::vector<Batch> BatchStore::running() {
  return those([](const Batch& batch) { return !batch.ended(); });
}

ApiResult<Batch> BatchStore::update(std::string_view id, const std::function<void(Batch& batch)>& change) {
  const std::lock_guard writing(disk_);
  Batch changed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = batches_.find(id);
    if (found == batches_.end()) return no_such_batch(id);
    change(found->second);
    changed = found->second;
  }
  if (const Status written = replace_file(file_of(id, ".json"), batch_record(changed)); !written.ok())
    log_warn("server", "the state of a batch is not kept: {}", written.message());
  return changed;
}

void BatchStore::note(std::string_view id, const std::function<void(Batch& batch)>& change) {
  const std::lock_guard lock(mutex_);
  const auto found = batches_.find(id);
  if (found != batches_.end()) change(found->second);
}

}  // namespace tessera
