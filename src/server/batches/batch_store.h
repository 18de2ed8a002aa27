// Stores the batches of a server in a folder. If there are too many batches, the store forgets the oldest one that has
// ended. Batches survive the process: the next process continues the batches that have not ended.
//
//   BatchStore store = TRY(BatchStore::open(folder.batches(), {}));
//   const Batch batch = TRY(store.add({.owner = owner, .endpoint = "/v1/embeddings", …}));
//   TRY(store.update(batch.id, [](Batch& changed) { ++changed.completed; }));
//
// find() and list() return a batch only to its owner. Threads: any thread may call every function. add() and update()
// wait for the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/server/api_result.h"
#include "tessera/server/batches/batch.h"

namespace tessera {

class BatchStore {
 public:
  struct Limits {
    std::size_t running = 1000;   // maximum number of batches that have not ended
    std::size_t number = 10'000;  // maximum number of all batches, ended or not
  };

  // Reads the records in the folder. Skips a record that cannot be read, and logs a warning.
  static Result<std::unique_ptr<BatchStore>> open(std::filesystem::path folder, Limits limits);

  // Makes `owner` the owner of all batches whose owner is "", and writes this to the disk. Does nothing if `owner` is
  // "". Call it before other threads use the store. Error: the disk fails.
  Status give_unnamed(const std::string& owner);

  // Stores a new batch and gives it an id. Errors: 429 if too many batches have not ended, and 500 if the disk fails.
  ApiResult<Batch> add(Batch batch);
  // Error: 404 if there is no such batch or it has another owner.
  ApiResult<Batch> find(std::string_view id, std::string_view owner);
  // Returns the owner's batches, the newest first.
  std::vector<Batch> list(std::string_view owner);
  // Returns the batches that have not ended, the oldest first.
  std::vector<Batch> running();

  // Changes a batch and writes it to the disk. Returns the changed batch. Error: 404 if there is no such batch. If the
  // disk fails, the change is kept in memory only, and a warning is logged.
  ApiResult<Batch> update(std::string_view id, const std::function<void(Batch& batch)>& change);
  // Changes a batch in memory only, for counts that a restart computes again.
  void note(std::string_view id, const std::function<void(Batch& batch)>& change);

  // Return the paths of a running batch's answer files.
  std::filesystem::path output_of(std::string_view id) const { return file_of(id, ".output"); }
  std::filesystem::path errors_of(std::string_view id) const { return file_of(id, ".errors"); }

 private:
  BatchStore(std::filesystem::path folder, Limits limits) : folder_(std::move(folder)), limits_(limits) {}
  Status load();
  std::filesystem::path file_of(std::string_view id, std::string_view ending) const;
  std::vector<Batch> those(const std::function<bool(const Batch&)>& wanted);
  void forget_oldest();  // precondition: mutex_ is held

  const std::filesystem::path folder_;
  const Limits limits_;
  std::mutex disk_;                                    // held while a record is written; locked before mutex_
  std::mutex mutex_;                                   // held only briefly, because the I/O thread also takes it
  std::map<std::string, Batch, std::less<>> batches_;  // guarded by mutex_
};

}  // namespace tessera
