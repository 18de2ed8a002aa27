// The batches of a server, kept in a folder. The oldest ended ones are forgotten when there are too many. Batches
// survive the process: those that have not ended go on in the next one.
//
//   BatchStore store = TRY(BatchStore::open(folder.batches(), {}));
//   const Batch batch = TRY(store.add({.owner = owner, .endpoint = "/v1/embeddings", …}));
//   TRY(store.update(batch.id, [](Batch& changed) { ++changed.completed; }));
//
// A batch is found only by its owner. Threads: any thread may call every function. add() and update() wait for the
// disk.
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
    std::size_t running = 1000;  // batches that have not ended
    std::size_t number = 10'000;
  };

  // Reads what the folder has. A record that cannot be read is left out with a warning.
  static Result<std::unique_ptr<BatchStore>> open(std::filesystem::path folder, Limits limits);

  // Keeps a new batch and gives it an id. Errors: 429 if too many batches have not ended; 500 if the disk fails.
  ApiResult<Batch> add(Batch batch);
  // Errors: 404 if there is no such batch or it has another owner.
  ApiResult<Batch> find(std::string_view id, std::string_view owner);
  // Returns the owner's batches, the newest first.
  std::vector<Batch> list(std::string_view owner);
  // Returns the batches that have not ended, the oldest first.
  std::vector<Batch> running();

  // Changes a batch and writes it to the disk. Returns what it is now. Error: 404 if there is none; after an error of
  // the disk the change holds until the process ends, and a warning says so.
  ApiResult<Batch> update(std::string_view id, const std::function<void(Batch& batch)>& change);
  // Changes a batch without writing it, for counts that a restart counts again.
  void note(std::string_view id, const std::function<void(Batch& batch)>& change);

  // Return where the answers of a running batch are.
  std::filesystem::path output_of(std::string_view id) const { return file_of(id, ".output"); }
  std::filesystem::path errors_of(std::string_view id) const { return file_of(id, ".errors"); }

 private:
  BatchStore(std::filesystem::path folder, Limits limits) : folder_(std::move(folder)), limits_(limits) {}
  Status load();
  std::filesystem::path file_of(std::string_view id, std::string_view ending) const;
  std::vector<Batch> those(const std::function<bool(const Batch&)>& wanted);
  void forget_oldest();  // needs the lock

  const std::filesystem::path folder_;
  const Limits limits_;
  std::mutex disk_;   // held while a record is written; taken before the other mutex
  std::mutex mutex_;  // held for short times only, so that the I/O thread may wait for it
  std::map<std::string, Batch, std::less<>> batches_;  // guarded by the mutex
};

}  // namespace tessera
